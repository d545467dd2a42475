"""``adk eval``'s verdict on every case, and its exit code, equal ours with ``threshold_on: case``.

One agent, driven by both commands over the same Gemini-speaking server.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.gemini_server import client

AGENT = """\
from google.adk.agents import LlmAgent


def weigh(item: str, unit: str) -> dict:
    '''Weigh an item.

    Args:
        item: What to weigh.
        unit: The unit of the answer.
    '''
    return {"item": item, "weight": len(item), "unit": unit}


root_agent = LlmAgent(name="scales", model="gemini-2.5-flash", instruction="Weigh with weigh.", tools=[weigh])
"""

RULES = {
    "rules": [
        {
            "when": {"user": "^Weigh (.+) twice", "after_tool": None},
            "reply": {
                "calls": [
                    {"name": "weigh", "args": {"item": "{1}", "unit": "kg"}},
                    {"name": "weigh", "args": {"item": "{1}", "unit": "lb"}},
                ]
            },
        },
        {
            "when": {"user": "^Weigh (.+)", "after_tool": None},
            "reply": {"text": "One moment.", "calls": [{"name": "weigh", "args": {"item": "{1}", "unit": "kg"}}]},
        },
        {
            "when": {"after_tool": "weigh"},
            "reply": {"text": "It weighs {tool.weight} {tool.unit}, das Gewicht für 秤."},
        },
        {"when": {"user": "^Say nothing"}, "reply": {"text": "...", "thought": "I would rather not."}},
        {"when": {"user": "(?i)thanks"}, "reply": {"text": "You are welcome!"}},
    ]
}


def turn(asked: str, answer: str | None, calls: list[tuple[str, str]]) -> dict[str, Any]:
    uses = [{"name": "weigh", "args": {"item": item, "unit": unit}} for item, unit in calls]
    expected = {"final_response": {"role": "model", "parts": [{"text": answer}]}} if answer is not None else {}
    return {
        "user_content": {"role": "user", "parts": [{"text": asked}]},
        "intermediate_data": {"tool_uses": uses},
        **expected,
    }


APPLE = "It weighs 5 kg, das Gewicht für 秤."
WELCOME = "You are welcome!"
CASES = {
    "right": [turn("Weigh apple", APPLE, [("apple", "kg")])],
    "right_in_two_turns": [turn("Weigh apple", APPLE, [("apple", "kg")]), turn("Thanks", WELCOME, [])],
    "right_in_parallel": [
        turn("Weigh apple twice", "It weighs 5 lb, das Gewicht für 秤.", [("apple", "kg"), ("apple", "lb")])
    ],
    "other_argument": [turn("Weigh apple", APPLE, [("pear", "kg")])],
    "missing_call": [turn("Weigh apple", APPLE, [("apple", "kg"), ("apple", "lb")])],
    "extra_call": [turn("Weigh apple twice", APPLE.replace("kg", "lb"), [("apple", "kg")])],
    "other_order": [turn("Weigh apple twice", APPLE.replace("kg", "lb"), [("apple", "lb"), ("apple", "kg")])],
    "call_in_the_second_turn_missing": [
        turn("Weigh apple", APPLE, [("apple", "kg")]),
        turn("Thanks", WELCOME, [("apple", "kg")]),
    ],
    "nearly_the_words": [turn("Weigh apple", "It weighs 5 kg, Gewicht.", [("apple", "kg")])],
    "other_words": [turn("Weigh apple", "No idea at all.", [("apple", "kg")])],
    "one_turn_of_two_in_other_words": [
        turn("Weigh apple", APPLE, [("apple", "kg")]),
        turn("Thanks", "Goodbye then.", []),
    ],
    "only_punctuation": [turn("Say nothing", "...", [])],
}

CONFIGS: dict[str, dict[str, Any] | None] = {
    "exact": {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.8},
    "tolerant": {
        "tool_trajectory_avg_score": {"threshold": 0.5, "matchType": "ANY_ORDER"},
        "response_match_score": {"threshold": 0.5},
    },
    "lax": {"tool_trajectory_avg_score": {"threshold": 0.0, "match_type": "IN_ORDER"}},
    "none": None,  # no file: ADK's default criteria and thresholds
}


@dataclass(frozen=True)
class Verdicts:
    """What a command said: its exit code, whether each case passed, and the scores by case and criterion."""

    exit_code: int
    passed: dict[str, bool]
    scores: dict[tuple[str, str], float | None]
    output: str


@pytest.fixture(scope="module")
def gemini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.RunningGemini]:
    script = tmp_path_factory.mktemp("scales") / "rules.json"
    script.write_text(json.dumps(RULES))
    with client.running(script) as running:
        yield running


@pytest.fixture(params=CONFIGS)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "scales").mkdir()
    (tmp_path / "scales" / "__init__.py").write_text("from . import agent\n")
    (tmp_path / "scales" / "agent.py").write_text(AGENT)
    (tmp_path / "evals").mkdir()
    cases = [{"eval_id": name, "conversation": turns} for name, turns in CASES.items()]
    (tmp_path / "evals" / "scales.evalset.json").write_text(json.dumps({"eval_set_id": "scales", "eval_cases": cases}))
    if (criteria := CONFIGS[request.param]) is not None:
        (tmp_path / "evals" / "test_config.json").write_text(json.dumps({"criteria": criteria}))
    return tmp_path


def adk_eval(workspace: Path, python: Path, gemini: client.RunningGemini) -> Verdicts:
    argv = [python.parent / "adk", "eval", "scales", "evals/scales.evalset.json"]
    config = ["--config_file_path", "evals/test_config.json"]
    if not (workspace / "evals" / "test_config.json").exists():
        config = []
    ended = _run([*argv, *config], workspace, gemini)
    [saved] = (workspace / "scales" / ".adk" / "eval_history").glob("*.evalset_result.json")
    record = json.loads(saved.read_text())
    results = (json.loads(record) if isinstance(record, str) else record)["eval_case_results"]
    scores = {
        (case["eval_id"], metric["metric_name"]): metric["score"]
        for case in results
        for metric in case["overall_eval_metric_results"]
        if metric["metric_name"] in {"tool_trajectory_avg_score", "response_match_score"}
    }
    return Verdicts(
        ended.returncode, {case["eval_id"]: case["final_eval_status"] == 1 for case in results}, scores, ended.stdout
    )


def ours(workspace: Path, python: Path, gemini: client.RunningGemini) -> Verdicts:
    argv = [Path(sys.executable).parent / "agent-eval", "run", "evals/scales.evalset.json", "--agent", "scales"]
    ended = _run([*argv, "--python", python, "--threshold-on", "case"], workspace, gemini)
    results = json.loads((workspace / ".agent-eval" / "out" / "results.json").read_text())
    [found] = results["sets"]
    blocked = {
        finding["subject"]["case"] for finding in results["decision"]["findings"] if finding["severity"] == "blocks"
    }
    attempts = {case["case"]: case["attempts"] for case in found["cases"]}
    scores = {
        (case, score["criterion"]): score["score"] for case, [made] in attempts.items() for score in made["scores"]
    }
    return Verdicts(ended.returncode, {case: case not in blocked for case in attempts}, scores, ended.stdout)


def _run(argv: list[Any], workspace: Path, gemini: client.RunningGemini) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [str(part) for part in argv],
        cwd=workspace,
        env={**os.environ, **gemini.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode in (0, 1), ended.stdout
    return ended


@pytest.mark.exhaustive
def test_the_same_verdict_on_every_case(workspace: Path, adk213_python: Path, gemini: client.RunningGemini) -> None:
    theirs = adk_eval(workspace, adk213_python, gemini)
    mine = ours(workspace, adk213_python, gemini)
    assert set(theirs.passed) == set(CASES), theirs.output
    assert mine.passed == theirs.passed, mine.output
    assert mine.exit_code == theirs.exit_code
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-9)
    passed = re.search(r"Tests passed: (\d+)", theirs.output)
    assert passed
    assert int(passed[1]) == sum(mine.passed.values())
    assert gemini.seen()["unexpected"] == []
