from __future__ import annotations

import io

from sweeps.terminal.progress_line import row_counter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_row_counter_erases_its_line_at_the_end() -> None:
    out, ticks = Terminal(), iter([0.0, 2.0])
    with row_counter(out, lambda: next(ticks)) as tell:
        tell(5000)
        assert out.getvalue() == "\r5,000 rows, 2,500/s\x1b[K"
    assert out.getvalue().endswith("\r\x1b[K")


def test_the_row_counter_prints_nothing_without_a_terminal() -> None:
    out = io.StringIO()
    for stream in (out, None):
        with row_counter(stream) as tell:
            tell(1)
    assert out.getvalue() == ""
