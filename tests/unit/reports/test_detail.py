"""``comment_detail: scores``: not a word of agents, judges and users; and what makes two comments say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports.base import scores_only, state_of
from support.messages import text_finding

GOLDEN = Path(__file__).parents[2] / "golden"
SCENARIOS = sorted(path.parent.name for path in GOLDEN.glob("*/results.json"))
SAID = "Zebrafink"
# what names and counts; every other text could be somebody's words
NAMES = {
    "agent",
    "eval_set",
    "case",
    "criterion",
    "name",
    "path",
    "digest",
    "commit",
    "tool_version",
    "scoring_version",
}
NAMES |= {"started_at", "created_at", "source", "judge", "purpose", "provider", "model", "limit", "python", "platform"}
NAMES |= {"adk_version", "environment", "models", "packages_digest", "arguments", "selection", "threshold_on", "store"}
NAMES |= {"fail_on", "options", "arm", "ended", "kind", "status", "outcome", "goal", "cut_short", "change"}
NAMES |= {"code", "severity", "why", "doubt", "edit", "field", "state", "file", "option", "rule", "base", "criteria"}
NAMES |= {"blocks_nothing", "unit", "until"}


def everybody_says(value: Any) -> Any:
    """Every text that is no name, with a word in it."""
    if isinstance(value, BaseModel):
        held = {name: getattr(value, name) for name in type(value).model_fields if name not in NAMES}
        return value.model_copy(update={name: everybody_says(item) for name, item in held.items()})
    if isinstance(value, tuple):
        return tuple(map(everybody_says, value))
    if isinstance(value, dict):
        return {key: item if key in NAMES else everybody_says(item) for key, item in value.items()}
    if isinstance(value, list):
        return [everybody_says(item) for item in value]
    return f"{value} {SAID}" if type(value) is str else value


def report(scenario: str) -> ReportInput:
    return ReportInput(everybody_says(results_json.read(GOLDEN / scenario / "results.json")))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_word_of_anybody_is_in_the_comment(scenario):
    assert SAID not in REPORTS["markdown"](scores_only(report(scenario)), None)


@pytest.mark.parametrize("scenario", ["hostile", "inconclusive", "judged", "regressed", "several_agents", "weakened"])
def test_the_whole_comment_has_what_they_say(scenario):
    assert SAID in REPORTS["markdown"](report(scenario), None)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_number_and_name_of_the_tables_is(scenario):
    whole, bare = (REPORTS["markdown"](one, None) for one in (report(scenario), scores_only(report(scenario))))
    rows = [line for line in whole.splitlines() if re.match(r"\| [^|]*\|.*<code>", line) and SAID not in line]
    assert rows
    assert [row for row in rows if row not in bare] == []
    assert whole.splitlines()[2].split(":")[0] == bare.splitlines()[2].split(":")[0]


def test_a_quarantine_has_its_last_day_and_whether_the_case_fails():
    read = ReportInput(results_json.read(GOLDEN / "quarantined" / "results.json"))
    (line,) = re.findall(r"🚧 .*", REPORTS["markdown"](scores_only(read), None))[:1]
    assert re.search(r"until \d{4}-\d\d-\d\d", line)
    assert "which does not count" in line


def test_the_same_outcome_for_the_same_reasons_is_the_same_state():
    first = report("regressed").decision
    other = results_json.read(GOLDEN / "regressed" / "results.json").decision
    assert other is not None
    assert state_of(first) == state_of(other)
    assert state_of(first) != state_of(report("suite_drop").decision)


def test_another_case_that_blocks_or_another_way_to_weaken_the_gate_is_another_state():
    decision = report("regressed").decision
    fewer = decision.model_copy(update={"pairs": tuple(pair for pair in decision.pairs if not pair.blocking)})
    weaker = decision.model_copy(update={"weakenings": (text_finding("advisory", "less"),)})
    assert len({state_of(one) for one in (decision, fewer, weaker)}) == 3
