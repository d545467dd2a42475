"""The comment rendered by cmark-gfm with hostile text in every field: the same table, and nothing that acts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_eval_action.reports import MARKER, REPORTS, Link, ReportInput, markdown
from agent_eval_action.results.run_result import RunResult

ALLOWED = {
    *("blockquote", "p", "strong", "ul", "li", "h2", "b", "wbr", "table", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "code", "pre", "sub"),
}
# What GitHub's filters act on in text outside code, after Markdown is done with it.
ACTIVE = re.compile(r"@\w|(?<!\w)#\d|\bgh-\d|https?://|www\.|mailto:|xmpp:", re.IGNORECASE)


class Page(HTMLParser):
    """Tags with their nesting checked, tables by their cells, and the text outside code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.tables: list[list[int]] = []
        self.comments: list[str] = []
        self.loose = ""
        self.all_text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name) for name, _ in attrs]
        if tag != "wbr":  # it has no end
            self.stack.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append(0)
        elif tag in {"td", "th"}:
            self.tables[-1][-1] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        self.all_text += data
        if not {"code", "pre"} & set(self.stack):
            self.loose += data


def page(text: str) -> Page:
    found = Page(cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE))
    assert found.stack == []
    return found


def assert_harmless(found: Page) -> None:
    assert set(found.tags) <= ALLOWED
    assert {attribute for tag, attribute in found.attributes} <= {"align", "lang", "open", "class"}
    assert found.comments == [MARKER.removeprefix("<!--").removesuffix("-->")]
    assert not ACTIVE.search(found.loose), ACTIVE.search(found.loose)


KEPT = {
    "schema_version", "started_at", "status", "kind", "outcome", "goal", "unit", "created_at", "arm",
    "purpose", "store", "ended", "label", "accept", "on_weakened",
    "code", "severity", "why", "doubt", "edit", "field", "change", "state", "blocks_nothing",
}  # fmt: skip


def spoiled(value: Any, text: str, key: str = "") -> Any:
    """The result with ``text`` in every field that can hold any; what was told apart stays apart."""
    if isinstance(value, dict):
        return {name: item if name in KEPT else spoiled(item, text, name) for name, item in value.items()}
    if isinstance(value, list):
        return [spoiled(item, text, key) for item in value]
    return text + value[:3] if isinstance(value, str) and key != "status" else value


NASTY = [
    "|", "\\|", "`", "``", "```", "````\n", "\n", "\r", "<", ">", "&", "&lt;", "&#64;", "@octocat", "#123", "GH-12",
    "<!--", "-->", "</details>", "</summary>", "<summary>", "<script>alert(1)</script>", "<img src=x>", "![a](http://b/c)",
    "[a](http://b)", "[a]: http://b", "[^1]", "https://evil.example", "http://", "www.evil.example", "a@b.example",
    "mailto:a@b.c", "xmpp:a@b.c", "**", "_", "__a__", "~~", "$x$", "\\", "# ", "- ", "1. ", "> ", "---", "===", "| - |",
    "\t", "    code", "\u202e", "\u2066", "\u200b", "\x1b[31m", "\x00", "\ud800", "\ufffe", "<a href=x>", "</table>",
    "<p", "octo/repo#1", "http://a.b/`|", "@@", "![CDATA[", "<?php", "<", "WWW.", "HTTPS://X.y",
]  # fmt: skip
texts = st.lists(st.sampled_from(NASTY) | st.text(st.characters(), max_size=6), min_size=1, max_size=7).map("".join)


def with_text(result: RunResult, text: str) -> ReportInput:
    data = json.loads(result.model_dump_json())
    clean = text.encode("utf-8", "replace").decode()
    changed = RunResult.model_validate(spoiled(data, clean))
    link = Link(text, f"out/{text}")  # an address is made a link, by intent
    return ReportInput(changed, links=(link,), reproduce=f"run {text}")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
@example(text="a\\|b`c")
@example(text="</details>\n\n</summary>\n```\n````\n| x | y |\n")
@example(text="@octocat #1 GH-1 https://x.y www.x.y a@b.c <!-- ")
def test_no_text_changes_what_the_reader_sees_around_it(golden_result: Callable[[str], RunResult], text: str) -> None:
    result = golden_result("regressed")
    plain = page(REPORTS["markdown"](with_text(result, "harmless"), 200_000))
    hostile = page(REPORTS["markdown"](with_text(result, text), 200_000))
    assert_harmless(hostile)
    assert hostile.tables == plain.tables
    for tag in ("details", "summary", "table", "h2", "blockquote"):
        assert hostile.tags[tag] == plain.tags[tag]


@pytest.mark.parametrize("budget", [None, 20_000, 6_000, 3_000])
def test_the_hostile_scenario_is_harmless_at_every_length(
    golden_result: Callable[[str], RunResult], budget: int | None
) -> None:
    assert_harmless(page(REPORTS["markdown"](ReportInput(golden_result("hostile")), budget)))


@settings(max_examples=120, deadline=None)
@given(text=texts)
def test_escaped_text_reads_as_it_was(text: str) -> None:
    shown = "".join(page(f"{MARKER}\n\nx {markdown.code(text, 1_000)}\n").all_text.split())
    expected = markdown.clean(text, 1_000)
    assert shown.replace("\u200b", "") == "".join(f"x{expected}".split())


@settings(max_examples=120, deadline=None)
@given(text=texts)
@pytest.mark.parametrize(
    "place", ["{}", "- {}", "> {}", "| a |\n| - |\n| {} |", "<details>\n<summary>{}</summary>\n\n</details>", "## {}"]
)
def test_text_is_harmless_in_every_place(text: str, place: str) -> None:
    for escaped in (markdown.text(text), markdown.code(text), markdown.name(text)):
        found = page(f"{MARKER}\n\n" + place.format(escaped))
        assert_harmless(found)
        assert found.tables in ([], [[1, 1]])
        assert found.tags["h2"] == place.startswith("#")
        assert found.tags["pre"] == 0


@settings(max_examples=80, deadline=None)
@given(lines=st.lists(texts, max_size=5))
def test_no_line_ends_its_code_block(lines: list[str]) -> None:
    found = page(f"{MARKER}\n\n{markdown.fence(lines, 'diff')}\n\nafter")
    assert_harmless(found)
    assert found.tags["pre"] == 1
    assert found.loose.strip() == "after"


def test_a_hostile_title_is_a_heading_and_nothing_else(golden_result: Callable[[str], RunResult]) -> None:
    title = "a | b `c` <details> @octocat #1 ![x](https://evil.example/i.png) --> </h2>"
    found = page(REPORTS["markdown"](ReportInput(golden_result("passed"), title=title), None))
    assert_harmless(found)
    assert found.tags["h2"] == 1
    assert "a | b `c` <details> @" in found.all_text


def test_a_link_is_made_only_of_an_address(golden_result: Callable[[str], RunResult]) -> None:
    links = (
        Link("run", "https://ci.example/runs/7?a=b"),
        Link("bad", "javascript:alert(1)"),
        Link("file", "out/x.json"),
    )
    text = REPORTS["markdown"](ReportInput(golden_result("passed"), links=links), None)
    html = cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE)
    assert re.findall(r'href="([^"]*)"', html) == ["https://ci.example/runs/7?a=b"]
