"""Every eval file of the corpus that loads: each case against perturbed copies of itself, scored as google-adk does."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import load_eval_file
from agent_eval_action.results.evalset import EvalCase, IntermediateData, Invocation
from support.turns import criterion, score

FEWEST = 60
CRITERIA: list[tuple[str, Any]] = [
    ("tool_trajectory_avg_score", {"threshold": 1.0}),
    ("tool_trajectory_avg_score", {"threshold": 0.5, "match_type": "IN_ORDER"}),
    ("tool_trajectory_avg_score", {"threshold": 0.5, "match_type": "ANY_ORDER", "ignore_args": True}),
    ("response_match_score", {"threshold": 0.8}),
]


@pytest.fixture(scope="module")
def cases(corpus: Path) -> dict[str, tuple[EvalCase, ...]]:
    """Of each file that loads, its cases with fixed conversations."""
    found = {}
    for entry in json.loads((corpus / "INDEX.json").read_text()):
        if not entry["fam"].startswith("config") and entry["local"].endswith(".json"):
            try:
                loaded = load_eval_file(corpus / entry["local"], workspace=corpus)
            except EvalFileError:
                continue
            found[entry["local"]] = tuple(case for case in loaded.eval_set.eval_cases if case.conversation)
    return found


def with_explicit_args(turn: Invocation) -> Invocation:
    """Calls without args given as {}: that ADK tells them apart is one of the differences, tested on its own."""
    data = turn.intermediate_data
    if not isinstance(data, IntermediateData):
        return turn
    calls = tuple(one.model_copy(update={"args": one.args or {}}) for one in data.tool_uses)
    return turn.model_copy(update={"intermediate_data": data.model_copy(update={"tool_uses": calls})})


def perturbed(turn: Invocation, dice: random.Random) -> Invocation:
    """The turn with a call dropped, doubled, renamed or moved, and with words lost."""
    wire = turn.model_dump(mode="json", exclude_none=True)
    calls = [one.model_dump(mode="json", exclude_none=True) for one in turn.tool_calls()]
    match dice.choice(["same", "drop", "double", "rename", "reverse", "args"]) if calls else "same":
        case "drop":
            calls.pop(dice.randrange(len(calls)))
        case "double":
            calls.insert(0, calls[-1])
        case "rename":
            calls[0]["name"] += "_v2"
        case "reverse":
            calls.reverse()
        case "args":
            calls[-1]["args"] = {**calls[-1].get("args", {}), "more": [1, None]}
    words = turn.response_text.split(" ")
    kept = [word.upper() if dice.random() < 0.1 else word for word in words if dice.random() < 0.8]
    wire["intermediate_data"] = {"tool_uses": calls}
    wire["final_response"] = {"parts": [{"text": " ".join(kept)}]}
    return Invocation.model_validate(wire)


def test_scores_equal_those_of_google_adk(adk, cases):
    dice = random.Random(17)  # noqa: S311 - a test that can be repeated
    scored = 0
    for file, of_file in cases.items():
        for case in of_file:
            expected = [with_explicit_args(turn) for turn in case.conversation or ()]
            for actual in (expected, [perturbed(turn, dice) for turn in expected]):
                for name, options in CRITERIA:
                    ours, theirs = (
                        score(criterion(name, **options), expected, actual),
                        adk(name, options, expected, actual),
                    )
                    where = f"{file} {case.eval_id} {name} {options}: {theirs} {ours.reason}"
                    assert ours.score == pytest.approx(theirs.get("score"), abs=1e-9), where
                    assert [t.score for t in ours.turns] == pytest.approx(
                        [t["score"] for t in theirs["turns"]], abs=1e-9
                    )
                    assert ours.passed is (theirs["status"] == "PASSED"), where
                    scored += 1
    assert len(cases) >= FEWEST, f"only {len(cases)} files of the corpus were scored"
    assert scored >= FEWEST * len(CRITERIA) * 2
