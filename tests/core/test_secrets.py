"""Secrets that a process remembers are in no text that it prints, stores or sends."""

from __future__ import annotations

import html
import io
import json
import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.host import logging_setup
from sweeps.core.text import secrets
from sweeps.core.text.secrets import (
    LONG_VALUE,
    hide_in_output,
    hide_known,
    hide_known_bytes,
    is_secret_variable,
    masked,
    remember,
)
from tests.commands import invoke

WRITERS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "repr": repr,
    "repr with both quotes": lambda text: repr(f"'\"{text}"),
    "ascii": ascii,
    "bytes": lambda text: repr(text.encode()),
    "YAML": lambda text: yaml.safe_dump(text, width=10**9),
    "shell": shlex.quote,
    "path of a URL": quote,
    "part of a URL": lambda text: quote(text, safe=""),
    "URL of requests": lambda text: quote(text, safe="!#$%&'()*+,/:;=?@[]~"),
    "query of a URL": quote_plus,
}
# Texts of several lines have tests of their own.
TEXTS = st.text(
    st.sampled_from("aZ09_.-\"'\\%/+ &<>=$`~:é😀"), min_size=LONG_VALUE, max_size=30
) | st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp"), exclude_characters="\xa0*"),
    min_size=LONG_VALUE,
    max_size=15,
)


@given(TEXTS, st.lists(st.sampled_from(sorted(WRITERS)), max_size=3), st.booleans())
def test_a_remembered_secret_is_hidden_however_it_is_written(
    secret: Any, writers: Any, in_html: Any
) -> None:
    secrets._known = ()
    remember(secret)
    text = secret
    for writer in writers:
        text = WRITERS[writer](text)
    text = html.escape(text) if in_html else text
    hidden = masked(f"before {text} after")
    assert "***" in hidden and secret not in hidden
    assert masked(hidden) == hidden


@given(st.text(max_size=60))
def test_a_text_without_secrets_stays_the_same(text: Any) -> None:
    secrets._known = ()
    remember("a-secret-that-no-text-contains")
    assert hide_known(text) == text
    assert hide_known_bytes(text.encode()) == text.encode()


def test_a_short_secret_stays_because_it_may_be_a_word() -> None:
    for short in ("", "1", "test", "hunter2"):
        remember(short)
    assert hide_known("1 test with hunter2") == "1 test with hunter2"


@pytest.mark.parametrize(
    "value, printed",
    [
        ("-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n", "line 2: BgkqhkiG9w0B"),
        (json.dumps({"id": 1, "key": "BEGIN\nMIIEvQIBADAN\n"}), "MIIEvQIBADAN"),
        ("Bearer MIIEvQIBADAN", "the token MIIEvQIBADAN"),
        ("postgresql://me:long%2Fpassword@host/db", "no entry for long/password"),
        ("https://host/x?token=long%2Btoken", "the token long+token"),
    ],
)
def test_the_lines_words_and_passwords_of_a_secret_are_hidden(value: Any, printed: str) -> None:
    remember(value)
    assert "***" in hide_known(printed)


def test_a_secret_is_hidden_before_a_secret_that_is_a_part_of_it() -> None:
    remember("first-part")
    remember("first-part-and-more")
    assert hide_known("x first-part-and-more") == "x ***"


def test_output_that_is_not_utf_8_keeps_its_bytes() -> None:
    remember("first-part")
    assert hide_known_bytes(b"\xff first-part \xe9\n") == b"\xff *** \xe9\n"


def test_a_stream_hides_what_is_written_to_it() -> None:
    stream = io.StringIO()
    hide_in_output(stream)
    remember("first-part")
    assert stream.write("first-part") == len("first-part")
    print("and first-part", file=stream)
    assert stream.getvalue() == "***and ***\n"


def test_an_error_shows_no_secret() -> None:
    remember("first-part")
    error = InputError(Problem("data.train", "no first-part"))
    assert str(error) == "data.train: no ***"
    assert str(SweepsError("no first-part")) == "no ***"


def test_the_log_of_a_sweep_has_no_secret(tmp_path: Path) -> None:
    remember("first-part")
    with logging_setup.redirect_to_file(tmp_path / "sweep.log"):
        logging.getLogger("sweeps").warning("no first-part")
        print("printed first-part")
    assert (tmp_path / "sweep.log").read_text().splitlines()[-1] == "printed ***"
    assert "first-part" not in (tmp_path / "sweep.log").read_text()


def test_the_command_line_hides_secrets_of_earlier_logs(finished_sweep: Any) -> None:
    remember("first-part")
    with (finished_sweep / "trials" / "0000" / "logs" / "rank-0.log").open("a") as log:
        log.write("no first-part\n")
    done = invoke("logs", finished_sweep, "0000")
    assert done.exit_code == 0 and done.stdout.endswith("no ***\n")


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "TOKENIZERS_PARALLELISM"])
def test_a_name_that_only_looks_like_that_of_a_secret(name: str) -> None:
    assert not is_secret_variable(name, "/home/me")
    assert is_secret_variable("DB_PWD", "x") and is_secret_variable("HF_TOKEN", "x")


def test_lines_that_are_written_together_have_no_secret() -> None:
    remember("tok-en-of-mine")
    stream = io.StringIO()
    hide_in_output(stream)
    stream.writelines(["a tok-en-of-mine\n", "b\n"])
    assert stream.getvalue() == "a ***\nb\n"
