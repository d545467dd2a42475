"""One result, every report: what each scenario renders to is kept beside it and read by people in reviews."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent_eval_action.reports import REPORTS, Link, ReportInput, results_json

HERE = Path(__file__).parent
SCHEMA = HERE.parents[1] / "schema" / "results.schema.json"
FILES = {
    "junit": "junit.xml",
    "markdown": "comment.md",
    "summary": "summary.md",
    "html": "report.json",  # the data of the page; tests/integration/test_report_page.py looks at what it shows
    "annotations": "annotations.json",
}
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
SCENARIOS = sorted(path.parent.name for path in HERE.glob("*/results.json"))


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def report(scenario: str) -> ReportInput:
    return ReportInput(
        results_json.read(HERE / scenario / "results.json"),
        links=(Link("results", ".agent-eval/out/results.json"), Link("run", "https://ci.example/runs/7")),
        reproduce='docker run --rm -v "$PWD:/github/workspace" agent-eval-action run',
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_scenario_renders_as_it_did(scenario: str, name: str, update: bool) -> None:
    kept = HERE / scenario / FILES[name]
    text = REPORTS[name](report(scenario), None)
    if name == "html":
        text = json.dumps(json.loads(_DATA.findall(text)[0]), indent=1, ensure_ascii=False) + "\n"
    if update:
        kept.write_text(text, encoding="utf-8", newline="\n")
    assert text == kept.read_bytes().decode(), "look at the difference; if it is meant: pytest --update-golden"


def test_every_outcome_has_a_scenario() -> None:
    outcomes = {str(report(scenario).decision.outcome) for scenario in SCENARIOS}
    assert outcomes == {"pass", "fail", "inconclusive", "collecting"}
