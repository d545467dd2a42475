"""``agent-eval watch``: a save runs again what it affects, and nothing else; Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.cli.watch import _Watcher
from agent_eval_action.errors import AgentEvalError
from support.pseudo_terminal import PseudoTerminal

WAITING = "waiting for a save"
PROGRAM = """
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).resolve().parent
for line in sys.stdin:
    asked = json.loads(line)["user_text"]
    with open(sys.argv[1], "a") as log:
        print(here.name, asked, os.getpid(), file=log)
    if asked == "hang":
        time.sleep(600)
    answer = {"text": (here / "prompt.md").read_text().format(asked), "usage": {"total_tokens": 1}}
    print(json.dumps(answer), flush=True)
"""


def turn(said: str, answer: str) -> dict[str, Any]:
    return {"user_content": {"parts": [{"text": said}]}, "final_response": {"parts": [{"text": answer}]}}


class Project:
    """Two agents with two cases each, and a log of what they were asked, which lies elsewhere."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root, self.log = root, log
        agents = []
        for name in ("one", "two"):
            folder = root / name
            folder.mkdir(parents=True)
            (folder / "program.py").write_text(PROGRAM)
            (folder / "prompt.md").write_text("you said {}")
            (folder / "test_config.json").write_text('{"criteria": {"response_match_score": 0.9}}')
            self.expect(name, "you said ho")
            command = json.dumps([sys.executable, "program.py", str(log)])
            no_spans = 'env: {OTEL_SDK_DISABLED: "true"}'  # they would be waited for
            agents.append(f"- {{path: {name}, driver: command, command: {command}, {no_spans}}}\n")
        self.config = "agents:\n" + "".join(agents)
        (root / "agent-eval.yaml").write_text(self.config)

    def expect(self, name: str, answer: str, said: str = "ho") -> None:
        cases = [("hi", "hi", "you said hi"), ("ho", said, answer)]
        content = [{"eval_id": case, "conversation": [turn(*texts)]} for case, *texts in cases]
        path = self.root / name / f"{name}.evalset.json"
        path.write_text(json.dumps({"eval_set_id": name, "eval_cases": content}))

    def asked(self) -> list[str]:
        """What agents were asked since the last time."""
        lines = [line.rpartition(" ")[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []
        self.log.write_text("")
        return sorted(lines)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", tmp_path / "log")


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("width", [80, 140])
def test_a_save_runs_again_what_it_affects_and_keeps_the_rest(project: Project, width: int) -> None:
    seen = PseudoTerminal("watch", cwd=project.root, width=width)
    seen.wait_for(WAITING)
    assert project.asked() == ["one hi", "one ho", "two hi", "two ho"]
    (project.root / "one/prompt.md").write_text("{} you said")
    seen.wait_for(WAITING)
    assert project.asked() == ["one hi", "one ho"], "the other agent does not read its prompt"
    assert seen.lines[0] == "saved: one/prompt.md", "what was there before is cleared"
    project.expect("two", "something else")
    seen.wait_for(WAITING)
    assert project.asked() == ["two ho"], "its other case is as it was"
    assert len([line for line in seen.lines if "“something else”" in line]) == 1
    assert [line for line in seen.lines if line.startswith("Blocked")]
    seen.interrupt()
    assert seen.end() == 0, seen.text
    assert "Traceback" not in seen.text


def test_an_error_is_shown_and_forgets_no_save(project: Project) -> None:
    seen = PseudoTerminal("watch", cwd=project.root)
    seen.wait_for(WAITING)
    project.asked()
    (project.root / "agent-eval.yaml").write_text(project.config + "max_cots: 1\n")
    seen.wait_for("`max_cost`?")
    seen.wait_for(WAITING)
    (project.root / "one/prompt.md").write_text("you said {}!")
    seen.wait_for("`max_cost`?")
    seen.wait_for(WAITING)
    (project.root / "agent-eval.yaml").write_text(project.config)
    seen.wait_for(WAITING)
    assert project.asked() == ["one hi", "one ho"], "its prompt was saved while nothing could be run"
    seen.interrupt()
    assert seen.end() == 0, seen.text


def test_an_interrupt_in_a_run_ends_it_and_leaves_no_process(project: Project) -> None:
    project.expect("two", "never", said="hang")
    seen = PseudoTerminal("watch", cwd=project.root)
    seen.wait_for("3/4")
    seen.interrupt()
    assert seen.end() == 130, seen.text
    pids = {int(line.split()[-1]) for line in project.log.read_text().splitlines()}
    assert pids
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_an_agent_writes_in_each_run_is_not_waited_for(project: Project) -> None:
    log = project.root / "one/calls.db"
    (project.root / "agent-eval.yaml").write_text(project.config.replace(str(project.log), str(log)))
    seen = PseudoTerminal("watch", cwd=project.root)
    seen.wait_for(WAITING)
    runs = log.read_text().count("one hi")
    assert 1 <= runs <= 3
    (project.root / "two/prompt.md").write_text("you said {}!")
    seen.wait_for("saved: two/prompt.md")
    seen.wait_for(WAITING)
    seen.interrupt()
    assert seen.end() == 0, seen.text


def test_files_that_cannot_be_watched_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    with _Watcher(tmp_path / "gone") as watcher:
        watcher.ready.wait()
        with pytest.raises(AgentEvalError, match="cannot be watched") as raised:
            watcher.saved(wait=True)
    assert "WATCHFILES_FORCE_POLLING" in (raised.value.hint or "")
