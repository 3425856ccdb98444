"""Names in Markdown: a reader sees each text as it is, and no link."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sweeps.core.text.markdown_text import cell, code, code_block

texts = st.text(
    st.sampled_from("`|\\<>&;*_~$[]()!#:/.w") | st.characters(exclude_categories=("C", "Z")),
    min_size=1,
    max_size=30,
)


def rendered(text: str) -> str:
    """Return Markdown as HTML. Tags in the Markdown stay tags, as where a README is shown."""
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


@example("a&lt;b")
@example("~~a~~")
@given(texts)
def test_a_cell_shows_its_text(text: Any) -> None:
    shown = rendered(f"| x |\n| --- |\n| {cell(text)} |")
    match = re.search(r"<td>(.*?)</td>", shown, re.S)
    assert match and html.unescape(match.group(1)) == text, shown


@given(texts)
def test_code_shows_its_text_in_a_sentence_and_in_a_table(text: Any) -> None:
    sentence = rendered(f"Look at {code(text)}.")
    match = re.fullmatch(r"<p>Look at <code>([^<]*)</code>\.</p>\n", sentence)
    assert match and html.unescape(match.group(1)) == text, sentence
    escaped = code(text).replace("|", r"\|")
    shown = rendered(f"| x |\n| --- |\n| {escaped} |")
    match = re.search(r"<td><code>(.*?)</code></td>", shown, re.S)
    assert match and html.unescape(match.group(1)) == text, shown


@given(st.lists(texts, min_size=1, max_size=4).map("\n".join))
def test_a_block_of_code_shows_its_text(text: Any) -> None:
    shown = rendered(code_block("yaml", text) + "\n\nafter")
    match = re.fullmatch(
        r'<pre><code class="language-yaml">(.*)\n</code></pre>\n<p>after</p>\n', shown, re.S
    )
    assert match and html.unescape(match.group(1)) == text, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://e.org", r"http\://e.org"),
        ("www.e.org", r"www\.e.org"),
        ("WWW.e.org", r"WWW\.e.org"),
        ("<http://e>", r"&lt;http\://e\>"),
        ("[a](b)", r"\[a\](b)"),
        ("a: b.c", "a: b.c"),
    ],
)
def test_an_address_is_no_link_for_readers_that_make_links_of_addresses(
    text: str, expected: str
) -> None:
    assert cell(text) == expected
