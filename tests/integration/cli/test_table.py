"""A table in the gate: measured by its mapping, compared with main's rows, and loosened only in sight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.messages import sentence
from support.recorded_repository import RecordedRepository

CONFIG = """\
agent: bot
recording: recording
evals:
  - path: data/greetings.csv
    columns: {prompt: ask, reference: REFERENCE, id: key}
"""
TABLE = "key,ask,want,other\na,hello,hello there,x y z\nb,hello,hello there,x y z\n"
PULL = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}


@pytest.fixture
def repo(tmp_path: Path) -> RecordedRepository:
    made = RecordedRepository(tmp_path)
    (tmp_path / "s.evalset.json").unlink()
    made.write("data/test_config.json", json.dumps({"criteria": {"response_match_score": 0.5}}))
    made.write("agent-eval.yaml", CONFIG.replace("REFERENCE", "want"))
    made.write("data/greetings.csv", TABLE)
    attempts = (
        (tmp_path / "recording/attempts.jsonl").read_text().replace('"eval_set": "s"', '"eval_set": "data/greetings"')
    )
    made.write("recording/attempts.jsonl", attempts + attempts.replace('"case": "a"', '"case": "b"'))
    made.commit()
    return made


def decision(repo: RecordedRepository) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((repo.root / ".agent-eval/out/results.json").read_text())["decision"]
    return found


def test_rows_are_measured(repo: RecordedRepository) -> None:
    done = repo("run")
    assert done.returncode == 0, done.stderr
    (measured,) = json.loads((repo.root / ".agent-eval/out/results.json").read_text())["sets"]
    scores = {
        case["case"]: [score["score"] for attempt in case["attempts"] for score in attempt["scores"]]
        for case in measured["cases"]
    }
    assert scores == {"a": [1.0], "b": [1.0]}


def test_a_row_that_is_removed_is_said(repo: RecordedRepository) -> None:
    repo.write("data/greetings.csv", TABLE.replace("b,hello,hello there,x y z\n", ""))
    repo.commit_on("pr")
    repo("run", **PULL)
    assert [sentence(found) for found in decision(repo)["weakenings"]] == [
        "case `b` was removed from `data/greetings.csv`"
    ]


def test_rows_that_expect_something_else_by_another_mapping_are_said(repo: RecordedRepository) -> None:
    repo.write("agent-eval.yaml", CONFIG.replace("reference: REFERENCE, ", ""))
    repo.commit_on("pr")
    repo("run", **PULL)
    assert {found["subject"]["case"] for found in decision(repo)["weakenings"]} == {"a", "b"}
