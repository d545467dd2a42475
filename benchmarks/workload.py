"""The measured workload: a workspace with the price agent, its eval set, and the model's rules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
AGENT = "price_agent"
CALLS_PER_CASE = 3
"""First turn: a tool call, then the answer; second turn: an answer. They run one after another."""

CRITERIA = {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.8}

RULES: dict[str, Any] = {
    "rules": [
        {
            "when": {"user": r"cost.* (I\d+)", "after_tool": None},
            "reply": {"calls": [{"name": "look_up_price", "args": {"item": "{1}"}}]},
        },
        {"when": {"after_tool": "look_up_price"}, "reply": {"text": "{tool.item} costs {tool.price} euros."}},
        {"when": {"user": r"delivered.* (I\d+)"}, "reply": {"text": "{1} is delivered by post within three days."}},
    ]
}


@dataclass(frozen=True)
class Workload:
    """A workspace on disk. ``rules`` is the script of the local server."""

    folder: Path
    cases: int

    @property
    def agent(self) -> Path:
        return self.folder / AGENT

    @property
    def eval_set(self) -> Path:
        return self.folder / "evals" / "prices.evalset.json"

    @property
    def criteria(self) -> Path:
        return self.folder / "evals" / "test_config.json"

    @property
    def rules(self) -> Path:
        return self.folder / "rules.json"


def write(folder: Path, cases: int, criteria: Mapping[str, Any] = CRITERIA) -> Workload:
    """Write the workspace to an empty folder."""
    workload = Workload(folder, cases)
    shutil.copytree(HERE / AGENT, workload.agent, ignore=shutil.ignore_patterns("__pycache__"))
    workload.eval_set.parent.mkdir()
    workload.eval_set.write_text(json.dumps(eval_set(cases), indent=1))
    workload.criteria.write_text(json.dumps({"criteria": criteria}))
    workload.rules.write_text(json.dumps(RULES))
    return workload


def eval_set(cases: int) -> dict[str, Any]:
    """Return cases of two turns and one tool call each, with the agent's own answers."""
    return {"eval_set_id": "prices", "eval_cases": [_case(number) for number in range(cases)]}


def _case(number: int) -> dict[str, Any]:
    item = f"I{number}"
    calls = [{"name": "look_up_price", "args": {"item": item}}]
    return {
        "eval_id": f"case_{number:05}",
        "session_input": {"app_name": AGENT, "user_id": "customer", "state": {}},
        "conversation": [
            _turn(f"{number}-1", f"What does it cost, item {item}?", f"{item} costs {3 * number + 1} euros.", calls),
            _turn(
                f"{number}-2",
                f"And how is it delivered, item {item}?",
                f"{item} is delivered by post within three days.",
                [],
            ),
        ],
    }


def _turn(name: str, asked: str, answer: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "invocation_id": name,
        "user_content": {"role": "user", "parts": [{"text": asked}]},
        "final_response": {"role": "model", "parts": [{"text": answer}]},
        "intermediate_data": {"tool_uses": calls},
    }
