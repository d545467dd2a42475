"""``agent-eval update``: expected against actual, one key each, and what is written into eval files and accept.yaml."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.pseudo_terminal import PseudoTerminal
from support.recorded_repository import RecordedRepository

CASES = {"roll": "you rolled 4", "greet": "hello there", "bye": "bye bye"}
QUESTION = "q quit"
NEW = "you rolled\nsomething else \x1b[31mentirely"


def turn(said: str, answer: str, **args: Any) -> dict[str, Any]:
    call = {"name": "roll_die", "args": args}
    return {
        "user_content": {"role": "user", "parts": [{"text": said}]},
        "final_response": {"role": "model", "parts": [{"text": answer}]},
        "intermediate_data": {"tool_uses": [call] if args else []},
    }


class Repository(RecordedRepository):
    """Three cases with a baseline, and a recording that can be made otherwise."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.write("agent-eval.yaml", "agent: bot\nrecording: recording\ngate: {threshold_on: case}\n")
        self.write("test_config.json", json.dumps({"criteria": {"response_match_score": 0.9}}))
        sides = {"roll": {"sides": 6}}
        cases = [
            {"eval_id": name, "conversation": [turn(name, text, **sides.get(name, {}))]} for name, text in CASES.items()
        ]
        self.text = json.dumps({"eval_set_id": "s", "eval_cases": cases}, indent=3).replace("[]", "[ ]") + "\n\n"
        self.write("s.evalset.json", self.text)
        self.record()
        assert self("run").returncode == 0
        assert self("baseline", "update", "--from", ".agent-eval/out").returncode == 0

    def record(self, **made: list[tuple[str, int]]) -> None:
        lines = []
        for name, text in CASES.items():
            usual = [(text, 6 if name == "roll" else 0)] * 5
            for repeat, (answer, sides) in enumerate(made.get(name, usual)):
                turns = [turn(name, answer, **({"sides": sides} if sides else {}))]
                key = {"agent": "bot", "eval_set": "s", "case": name, "repeat": repeat, "case_digest": "x"}
                lines.append({**key, "turns": turns})
        self.write("recording/attempts.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def accepted(self) -> list[dict[str, str]]:
        path = self.root / ".agent-eval/accept.yaml"
        return yaml.safe_load(path.read_text()) if path.exists() else []

    def now(self) -> str:
        return (self.root / "s.evalset.json").read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path)
    repository.record(roll=[(NEW, 20)] * 3 + [("odd", 1)] * 2, greet=[("good day to you", 0)] * 5)
    assert repository("run", "--repeats", "5").returncode == 1
    return repository


def written(repository: Repository, **answers: str) -> str:
    """The file as it is to be: with these answers, and not one byte else."""
    text = repository.text
    for name, answer in answers.items():
        text = text.replace(json.dumps(CASES[name]), json.dumps(answer))
    return text


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("width", [80, 140])
def test_one_key_each_and_only_what_was_accepted_is_written(repository: Repository, width: int) -> None:
    seen = PseudoTerminal("update", cwd=repository.root, width=width)
    seen.wait_for(QUESTION)
    assert "1/2  roll  s.evalset.json:4" in seen.lines
    assert "  3 of 5 runs did this; they differ among themselves" in seen.lines
    shown = ["    - roll_die(sides=6)", "    + roll_die(sides=20)", "    - you rolled 4", "    + you rolled"]
    assert [line for line in seen.lines if line.startswith("    ")][:4] == shown
    assert "\x1b[31mentirely" not in seen.raw
    seen.press("x")
    seen.wait_for(QUESTION)
    seen.press("a")
    seen.wait_for("2/2  greet")
    seen.wait_for(QUESTION)
    seen.press("s")
    assert seen.end() == 0, seen.text
    assert "s.evalset.json: 1 case updated" in seen.lines
    assert "1 case left as it is" in seen.lines
    assert repository.now() == written(repository, roll=NEW).replace('"sides": 6', '"sides": 20')
    (entry,) = repository.accepted()
    assert (entry["case"], entry["reason"]) == ("roll", "what the case expects was updated")


def test_what_is_edited_is_written_and_quitting_keeps_what_was_accepted(repository: Repository, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import json, sys\n"
        "turns = json.load(open(sys.argv[1]))\n"
        "turns[0]['answer'] = 'edited'\n"
        "turns[0]['tool_calls'][0]['args'] = {'sides': 8}\n"
        "json.dump(turns, open(sys.argv[1], 'w'))\n"
    )
    broken = tmp_path / "broken.py"
    broken.write_text("import sys; open(sys.argv[1], 'w').write('[{')\n")
    seen = PseudoTerminal("update", cwd=repository.root, EDITOR=f"{sys.executable} {editor}")
    seen.wait_for(QUESTION)
    seen.press("e")
    seen.wait_for("+ edited")
    seen.wait_for(QUESTION)
    seen.press("a")
    seen.wait_for("2/2")
    seen.wait_for(QUESTION)
    seen.press("q")
    assert seen.end() == 0, seen.text
    assert repository.now() == written(repository, roll="edited").replace('"sides": 6', '"sides": 8')
    assert [entry["case"] for entry in repository.accepted()] == ["roll"]
    seen = PseudoTerminal("update", cwd=repository.root, EDITOR=f"{sys.executable} {broken}")
    seen.wait_for("roll: the case is another than in that run: run it again")
    seen.wait_for(QUESTION)
    seen.press("e")
    seen.wait_for("that cannot be used")
    seen.wait_for(QUESTION)
    seen.interrupt()
    assert seen.end() == 130, seen.text
    assert "Traceback" not in seen.text
    assert repository.now() == written(repository, roll="edited").replace('"sides": 6', '"sides": 8')


def test_what_could_not_be_compared_is_not_taken_for_what_cases_expect(repository: Repository) -> None:
    """Cases that were edited since the run, and ones whose attempts are gone."""
    repository.write("s.evalset.json", repository.text.replace("hello there", "good day"))
    assert repository("update", "--case", "greet").returncode == 3
    assert repository("update", "--case", "bye").returncode == 0
    (repository.root / ".agent-eval/out/attempts.jsonl").write_text("")
    assert repository("update", "--all").returncode == 3
    assert repository.accepted() == []


def test_a_case_that_its_file_no_longer_has_is_not_taken_for_one_that_needs_no_update(repository: Repository) -> None:
    value = json.loads(repository.text)
    value["eval_cases"] = [case for case in value["eval_cases"] if case["eval_id"] != "roll"]
    repository.write("s.evalset.json", json.dumps(value))
    done = repository("update", "--case", "roll")
    assert done.returncode == 3, done.stderr
    assert "1 case of that run is in no eval file now" in done.stderr


def test_without_a_terminal_nothing_is_written_but_with_yes(repository: Repository) -> None:
    done = repository("update")
    assert done.returncode == 2
    assert "+ roll_die(sides=20)" in done.stderr
    assert "--yes accepts what is shown" in done.stderr
    assert repository.now() == repository.text
    assert repository.accepted() == []
    done = repository("update", "--case", "greet", "--yes", "--reason", "more polite")
    assert done.returncode == 0, done.stderr
    assert repository.now() == written(repository, greet="good day to you")
    assert [(entry["case"], entry["reason"]) for entry in repository.accepted()] == [("greet", "more polite")]
    assert repository("update", "--case", "gret").returncode == 2


def test_all_concerns_green_cases_too_and_the_next_run_passes(repository: Repository) -> None:
    same = [(CASES["roll"], 6)] * 5
    repository.record(roll=same, greet=[("good day to you", 0)] * 5, bye=[("bye bye!", 0)] * 5)
    assert repository("run").returncode == 1
    assert repository("update", "--all", "--yes").returncode == 0
    assert repository.now() == written(repository, greet="good day to you", bye="bye bye!")
    done = repository("run")
    assert done.returncode == 0, done.stderr
    again = repository("update", "--all", "--yes")
    assert again.returncode == 0
    assert "there is nothing to update" in again.stderr


def test_without_a_run_or_its_attempts_it_says_what_to_do(repository: Repository) -> None:
    (repository.root / ".agent-eval/out/attempts.jsonl").unlink()
    assert "holds excerpts" in repository("update", "--yes").stderr
    (repository.root / ".agent-eval/out/results.json").unlink()
    done = repository("update", "--yes")
    assert done.returncode == 2
    assert "agent-eval run" in done.stderr
