"""``agent-eval list``: what a run would measure, where it is written, and what main's history says it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.pseudo_terminal import PseudoTerminal
from support.recorded_repository import RecordedRepository
from support.repositories import run_git

SCHEMA = json.loads((Path(__file__).parents[3] / "schema" / "list.schema.json").read_text())
TURN = {"user_content": {"parts": [{"text": "hello"}]}, "final_response": {"parts": [{"text": "hello there"}]}}
JUDGED = {"final_response_match_v2": {"threshold": 0.8, "judge_model_options": {"judge_model": "gemini-2.5-flash"}}}


@pytest.fixture
def repository(tmp_path: Path) -> RecordedRepository:
    return RecordedRepository(tmp_path / "r")


def listed(repository: RecordedRepository, *words: str) -> dict[str, Any]:
    done = repository("list", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def names(found: dict[str, Any]) -> list[str]:
    (agent,) = found["agents"]
    return [case["case"] for eval_set in agent["sets"] for case in eval_set["cases"]]


def test_everything_has_its_place(repository):
    cases = [repository.case("a") | {"tags": ["smoke", 7]}, repository.case("b") | {"conversation": [TURN, TURN]}]
    text = json.dumps({"eval_set_id": "s", "eval_cases": cases}, indent=1)
    repository.write("s.evalset.json", text)
    repository.write("test_config.json", json.dumps({"criteria": {"response_match_score": 0.5, **JUDGED}}, indent=1))
    found = listed(repository)
    (agent,) = found["agents"]
    assert (agent["agent"], agent["path"]) == ("bot", "bot")
    (eval_set,) = agent["sets"]
    assert (eval_set["eval_set"], eval_set["path"]) == ("s", "s.evalset.json")
    match, judge = eval_set["criteria"]
    assert [match[name] for name in ("name", "threshold", "source", "line", "judge")] == [
        *("response_match_score", 0.5, "test_config.json", 3),
        None,
    ]
    assert (judge["judge"], judge["line"]) == ("gemini-2.5-flash", 4)
    assert [(case["case"], case["turns"], case["tags"]) for case in eval_set["cases"]] == [
        ("a", 1, ["smoke"]),
        ("b", 2, []),
    ]
    ids = [number for number, line in enumerate(text.splitlines(), 1) if '"eval_id"' in line]
    assert [case["line"] for case in eval_set["cases"]] == [number - 1 for number in ids]
    estimate = found["estimate"]
    assert (estimate["attempts"], estimate["turns"]) == (2, 3)
    assert (estimate["judge_calls"], estimate["most_judge_calls"]) == (9, 15)  # five votes, three of which decide
    assert estimate["judge_usd"] > 0
    assert (estimate["seconds"], estimate["usd"], estimate["history"]) == (None, None, "")


def test_history_says_what_a_run_takes(repository):
    made = repository("baseline", "update")
    assert made.returncode == 0, made.stderr
    path = repository.root / ".agent-eval" / "baseline.json"
    record = json.loads(path.read_text())
    record["records"][0]["seconds"] = 4.5
    record["cost"] = {"usd": 0.25}
    path.write_text(json.dumps(record))
    found = listed(repository, "--repeats", "2")
    assert found["agents"][0]["sets"][0]["cases"][0]["seconds"] == 4.5
    estimate = found["estimate"]
    assert (estimate["attempts"], estimate["seconds"], estimate["timed_cases"]) == (2, 9.0, 1)
    assert (estimate["usd"], estimate["history"]) == (0.25, ".agent-eval/baseline.json")
    shown = repository("list").stdout
    assert "takes about 4.5 s" in shown
    assert "not known" not in shown
    assert "cost $0.25 on main" in shown


def test_a_history_that_cannot_be_read_is_said_and_the_rest_is_listed(repository):
    repository.write("agent-eval.yaml", "agent: bot\nrecording: recording\nbaseline: {store: branch}\n")
    run_git(repository.root, "remote", "add", "origin", str(repository.root / "gone"))
    done = repository("list", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimate"]["history"] == ""
    assert "note: " in done.stderr


def test_a_part_is_listed_and_nothing_is_written(repository):
    cases = [repository.case(name) for name in ("a", "b", "c")]
    repository.write("s.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": cases}))
    repository.commit()
    assert [case["case"] for case in listed(repository, "--case", "[ab]")["agents"][0]["sets"][0]["cases"]] == [
        "a",
        "b",
    ]
    one = listed(repository, "s.evalset.json:c")
    assert [case["case"] for case in one["agents"][0]["sets"][0]["cases"]] == ["c"]
    assert not (repository.root / ".agent-eval").exists()


def test_what_is_wrong_is_said_as_in_a_run(repository):
    repository.write("s.evalset.json", "{")
    done = repository("list", "--json")
    assert done.returncode == 2
    (problem,) = json.loads(done.stdout)["error"]["problems"]
    assert "s.evalset.json" in json.dumps(problem)
    assert "s.evalset.json" in done.stderr


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("width", [80, 140])
def test_names_cannot_command_the_terminal_and_fit(repository, width):
    name = "\x1b]0;owned\x07<script>|::set-output\u202e" + "x" * 100
    cases = [repository.case(name) | {"tags": ["\x1b[31m@everyone"]}, repository.case("b")]
    repository.write("s.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": cases}))
    seen = PseudoTerminal("list", cwd=repository.root, width=width)
    assert seen.end() == 0
    assert not {"\x07", "\u202e"} & set(seen.raw)
    assert "\x1b]0" not in seen.raw
    assert "\x1b[31m" not in seen.raw
    assert "b" in [line.split()[0] for line in seen.lines if line.strip()]
    plain = repository("list").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(plain)
    assert listed(repository)["agents"][0]["sets"][0]["cases"][0]["case"] == name


def test_a_name_that_text_cannot_hold_is_listed(repository):
    text = json.dumps({"eval_set_id": "s", "eval_cases": [repository.case("a\ud800b")]})
    repository.write("s.evalset.json", text)
    for words in (("list",), ("list", "--json")):
        done = repository(*words)
        assert done.returncode in {0, 2}, done.stderr
        assert "Traceback" not in done.stderr
