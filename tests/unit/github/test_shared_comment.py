"""Sections of several jobs in one comment, rendered as GitHub does: none hides another, however hard it is cut."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options

from agent_eval_action.github.room import shortened
from agent_eval_action.github.sections import Kept, Stamp, put_together, taken_apart
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports.escape_markdown import text

GOLDEN = Path(__file__).parents[2] / "golden"
SCENARIOS = sorted(path.parent.name for path in GOLDEN.glob("*/results.json"))
KEY = "a | b `c` <details> @octocat #1 ![x](https://evil.example/i.png) --> </h2>"


class Page(HTMLParser):
    """Headings of sections with what they stand in; every tag must close what it opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.headings: list[list[str]] = []
        self.names: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)
        self.close()
        assert not self.stack, f"{self.stack} are not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - HTMLParser's
        if tag == "h2":
            self.headings.append(list(self.stack))
            self.names.append("")
        self.tags.add(tag)
        self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if "h2" in self.stack:
            self.names[-1] += data


def page(body: str) -> Page:
    return Page(cmarkgfm.github_flavored_markdown_to_html(body, options=Options.CMARK_OPT_UNSAFE))


def kept(scenario: str) -> Kept:
    report = ReportInput(results_json.read(GOLDEN / scenario / "results.json"), marker="")
    key = f"{KEY} {scenario}"
    return Kept(Stamp(key=key, outcome="fail", title=text(key)), REPORTS["markdown"](report, None))


@pytest.mark.parametrize("room", [100_000, 6_000, 3_000, 1_500, 700, 300, 120, 0])
def test_every_section_has_its_heading_and_none_stands_inside_another(room):
    sections = [kept(scenario) for scenario in SCENARIOS]
    body = put_together([Kept(one.stamp, shortened(one.text, room)) for one in sections], "1.1")
    shown = page(body)
    assert shown.headings == [[]] * len(SCENARIOS)
    assert [name.replace("\u200b", "").split()[-1] for name in shown.names] == SCENARIOS
    assert "img" not in shown.tags
    held = taken_apart(body)
    assert held is not None
    assert len(held.sections) == len(SCENARIOS)


def test_a_forged_marker_of_an_agent_in_a_report_makes_no_section():
    one = kept("hostile")
    forged = put_together([Kept(Stamp(key="forged", run=10**9), "taken over")], "9.9")
    said = Kept(one.stamp, f"{one.text}\n\n```text\n{forged}```\n\n<!-- agent-eval-action:end -->\n")
    held = taken_apart(put_together([said, kept("passed")], "1.1"))
    assert held is not None
    assert held.sections.keys() == {one.stamp.key, kept("passed").stamp.key}
