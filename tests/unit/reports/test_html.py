"""report.html: everything is in it, nothing foreign runs, nothing is loaded, and it stays of a size."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from typing import Any

import lxml.html
import pytest

from agent_eval_action.reports import REPORTS, Link, ReportInput
from agent_eval_action.reports.formatting import clean
from agent_eval_action.results.decision import ChangeKind, TurnBrief, Verdict
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CastVote,
    CriterionScore,
    RubricScore,
    ScoreStatus,
    SentenceLabel,
    TurnScore,
    Votes,
)

HOSTILE = [
    "<script>document.title='pwned'</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus=alert(1) '",
    "</code></details></main><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "</style><script>alert(1)</script>",
    "`</code><svg onload=alert(1)>`",
    "<!-- --><base href=//example.invalid>",
    "\u202eevil\x00\x1b[31m\ud800",
    "del\x7f",
]


def page(report: ReportInput, budget: int | None = None) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(REPORTS["html"](report, budget).encode().decode())


def data(report: ReportInput, budget: int | None = None) -> Any:
    """What the page's script reads."""
    (found,) = page(report, budget).xpath('//script[@id="data"]/text()')
    return json.loads(found)


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in texts(item)]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_leaves_the_data(build, text):
    rubric = RubricScore(
        rubric_id=text,
        text=text,
        score=0.0,
        rationale=text,
        votes=Votes(no=1),
        cast=(CastVote(yes=False, rationale=text),),
    )
    turn = TurnScore(
        turn=0,
        score=0.0,
        reason=text,
        rubrics=(rubric,),
        sentences=(SentenceLabel(sentence=text, label="unsupported"),),
    )
    score = CriterionScore(criterion=text, status=ScoreStatus.SCORED, score=0.0, reason=text, turns=(turn,))
    brief = TurnBrief(user=text, calls=(build.call(text, **{text: text}),), response=text)
    attempt = AttemptSummary(repeat=0, scores=(score,), turns=(brief,))
    fields = {"attempt": attempt, "expected": (brief,), "blocking": True, "baseline": build.stat(1.0)}
    build.case(text, ChangeKind.NEWLY_FAILING, 0.0, reason=text, **fields)
    one = build.report(Verdict.FAIL, reason=text, notes=(text,))
    hostile = ReportInput(one.result, links=(Link(text, text),), reproduce=text)
    tree = page(hostile)
    assert [one.get("type") for one in tree.xpath("//script")] == ["application/json", None]
    assert [one.tag for one in tree.body] == ["noscript", "script", "script"]
    shown = data(hostile)
    assert clean(text, 4000, lines=True) in texts(shown["rows"])
    assert "\ud800" not in json.dumps(shown)
    assert "\u202e" not in "".join(texts(shown))


def test_what_json_lacks_is_text(build):
    build.case("a", attempt=build.attempt(turns=(build.turn(build.call("f", x=float("nan"))),)))
    (call,) = data(build.report())["details"][0]["attempts"][0]["turns"][0]["calls"]
    assert call[1]["x"] == "nan"


def test_the_policy_names_our_style_and_script_and_nothing_else(build):
    build.case("a")
    text = REPORTS["html"](build.report(), None)
    (policy,) = page(build.report()).xpath('//meta[@http-equiv="Content-Security-Policy"]/@content')
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_only_an_address_of_the_run_itself_is_a_link(build):
    build.case("a")
    links = (Link("run", "https://github.example/o/r/actions/runs/7"), Link("bad", "javascript:alert(1)"))
    shown = data(ReportInput(build.result(), links=links))["frame"]["links"]
    assert [(link["label"], link["address"]) for link in shown] == [("run", True), ("bad", False)]


@pytest.mark.parametrize("scenario", ["regressed", "judged", "inconclusive"])
def test_everything_of_a_case_is_there(golden_result, scenario):
    result = golden_result(scenario)
    said = texts(data(ReportInput(result)))
    for owner in result.sets:
        for case in owner.cases:
            assert case.case in said
            for attempt in case.attempts:
                assert {turn.response for turn in attempt.turns} <= set(said)
                for score in attempt.scores:
                    assert score.criterion in said
                    for turn_score in score.turns:
                        assert all(rubric.text in said for rubric in turn_score.rubrics)
                        assert all(one.sentence in said for one in turn_score.sentences)
    for use in result.totals.uses:
        assert use.model in said


def test_beyond_its_size_cases_keep_a_row_and_the_worst_their_details(large_result):
    report = ReportInput(large_result(400))
    shown = data(report, 600_000)
    assert len(shown["rows"]) == len(shown["details"]) >= 400
    assert all(shown["details"][:5])
    assert shown["details"][-1] is None
    assert len(REPORTS["html"](report, 600_000).encode()) < 700_000


def test_one_huge_text_leaves_room_for_the_others(build):
    huge = CriterionScore(criterion="c", status=ScoreStatus.SCORED, score=0.0, reason="x" * 10_000_000)
    build.case("a", ChangeKind.NEWLY_FAILING, 0.0, attempt=build.attempt(0.0, scores=(huge,)), blocking=True)
    build.case("b")
    shown = data(build.report(Verdict.FAIL))
    assert all(shown["details"])
    assert len(json.dumps(shown)) < 100_000


def test_a_command_is_shown_only_for_a_name_that_can_be_typed(build):
    rows = data(build.case("a,b").case("b\x01").case("c").report())["rows"]
    assert {row["select"] for row in rows} == {'evals/b.test.json:"a,b"', "", "evals/b.test.json:c"}


def test_every_status_can_be_filtered_for(golden_result):
    shown = data(ReportInput(golden_result("regressed")))
    groups = {group["key"]: group["n"] for group in shown["frame"]["groups"]}
    assert groups == Counter(row["group"] for row in shown["rows"])
