"""report.html: everything is in it, nothing foreign runs, nothing is loaded, and it stays of a size."""

from __future__ import annotations

import base64
import hashlib
import re

import lxml.html
import pytest

from agent_eval_action.reports import REPORTS, Link, ReportInput
from agent_eval_action.results.decision import ChangeKind, TurnBrief, Verdict
from agent_eval_action.results.run_result import (
    AttemptSummary,
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
]


def page(report: ReportInput, budget: int | None = None) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(REPORTS["html"](report, budget).encode().decode())


def attributes(tree: lxml.html.HtmlElement) -> set[str]:
    return {name for one in tree.iter() if isinstance(one.tag, str) for name in one.attrib}


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_anything_but_text(build, text):
    rubric = RubricScore(rubric_id=text, text=text, score=0.0, rationale=text, votes=Votes(no=1))
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
    assert len(tree.xpath("//script")) == len(tree.xpath("//style")) == 1
    assert not tree.xpath("//img | //svg | //base | //iframe | //a | //link | //object | //form")
    assert attributes(tree) <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "id", "hidden", "type", "data-group",
        "aria-pressed", "placeholder", "aria-label", "data-name",
    }  # fmt: skip
    (case,) = tree.xpath('//*[@id="cases"]/*')
    assert case.tag == "details"


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
    tree = page(ReportInput(build.result(), links=links))
    assert tree.xpath("//a/@href") == ["https://github.example/o/r/actions/runs/7"]
    assert tree.xpath("//a/@rel") == ["noopener noreferrer"]


@pytest.mark.parametrize("scenario", ["regressed", "judged", "inconclusive"])
def test_everything_of_a_case_is_there(golden_result, scenario):
    result = golden_result(scenario)
    said = " ".join(page(ReportInput(result)).text_content().split())
    for owner in result.sets:
        for case in owner.cases:
            assert case.case in said
            for attempt in case.attempts:
                for turn in attempt.turns:
                    assert " ".join(turn.response.split()) in said
                for score in attempt.scores:
                    assert score.criterion in said
                    for turn_score in score.turns:
                        assert all(rubric.text in said for rubric in turn_score.rubrics)
                        assert all(one.sentence in said for one in turn_score.sentences)
    for use in result.totals.uses:
        assert use.model in said


def test_beyond_its_size_cases_keep_a_line_and_the_worst_their_details(large_result):
    report = ReportInput(large_result(400))
    text = REPORTS["html"](report, 600_000)
    tree = lxml.html.document_fromstring(text)
    kinds = [one.tag for one in tree.xpath('//*[@id="cases"]/*')]
    assert len(kinds) >= 400
    assert set(kinds[:5]) == {"details"}
    assert kinds[-1] == "div"
    assert len(text.encode()) < 700_000


def test_every_group_can_be_filtered_for(golden_result):
    tree = page(ReportInput(golden_result("regressed")))
    groups = set(tree.xpath('//*[@id="cases"]/*/@data-group'))
    assert set(tree.xpath("//button/@data-group")) == groups | {""}
