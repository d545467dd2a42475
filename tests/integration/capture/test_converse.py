"""Conversations with real agents become cases: what the agent did is what is expected."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from agent_eval_action.capture import EvalFile, case_of_turns, converse
from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import Settings
from agent_eval_action.formats import load_eval_file
from agent_eval_action.results.evalset import SessionInput
from agent_eval_action.results.run_result import ErrorKind
from support.command import agent_eval

ROOT = Path(__file__).resolve().parents[3]


def settings_of(root: Path) -> Settings:
    return resolve(flags={}, environ=os.environ, cwd=root).settings


@pytest.fixture
def obedient(project: Path) -> Settings:
    return settings_of(project)


async def test_what_an_agent_did_is_a_case_that_it_passes(obedient: Settings, tmp_path: Path) -> None:
    conversations = [["say hello", 'add {"a": 1, "b": 2}'], ["recall"], ["say my key is tops3cretvalue"]]
    session = SessionInput(app_name="bot", user_id="u", state={"own_die": 12})
    made = await converse(obedient, obedient.agents[0], conversations, environ=os.environ, session=session)
    cases = [
        case_of_turns(attempt.turns, f"case {n}", attempt.final_session_state, session=session)
        for n, attempt in enumerate(made)
    ]
    first = cases[0]["conversation"]
    assert [turn["final_response"]["parts"][0]["text"] for turn in first] == ["hello", '{"sum": 3}']
    assert first[1]["intermediate_data"] == {"tool_uses": [{"name": "add", "args": {"a": 1, "b": 2}}]}
    assert cases[1]["conversation"][0]["final_response"]["parts"][0]["text"] == '{"own_die": 12}'
    assert cases[1]["session_input"] == {"app_name": "bot", "user_id": "u", "state": {"own_die": 12}}
    assert "tops3cretvalue" not in json.dumps(cases)
    path = tmp_path / "evals/bot.evalset.json"
    path.parent.mkdir()
    assert EvalFile(path, tmp_path).add(cases[:2]) == ("case 0", "case 1")
    assert load_eval_file(path, workspace=tmp_path).format == "adk"
    done = agent_eval("run", "evals/bot.evalset.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


async def test_an_agent_that_fails_is_an_error_of_the_attempt(obedient: Settings, tmp_path: Path) -> None:
    failed, answered = await converse(
        obedient, obedient.agents[0], [["say one", "refuse the rest"], ["say two"]], environ=os.environ
    )
    assert failed.error is not None
    assert (failed.error.kind, failed.error.turn) == (ErrorKind.EXCEPTION, 1)
    assert [turn.response_text for turn in failed.turns] == ["one"]
    assert answered.error is None
    (tmp_path / "bot/program.py").write_text("import sys; sys.exit('no model')")
    (dead,) = await converse(obedient, obedient.agents[0], [["say one"]], environ=os.environ)
    assert dead.error is not None
    assert "no model" in dead.error.message + dead.error.traceback


async def test_an_adk_agent_becomes_cases(tmp_path: Path, adk213_python: Path) -> None:
    shutil.copytree(ROOT / "examples/dice/dice_agent", tmp_path / "dice_agent", ignore=shutil.ignore_patterns("__*__"))
    shutil.copy(ROOT / "examples/dice/dice_agent/__init__.py", tmp_path / "dice_agent")
    (tmp_path / "agent-eval.yaml").write_text(f"agent: {{path: dice_agent}}\npython: {adk213_python}\n")
    settings = settings_of(tmp_path)
    (attempt,) = await converse(
        settings, settings.agents[0], [["Roll a die with 6 sides", "Is it prime?"]], environ=os.environ
    )
    case = case_of_turns(attempt.turns, "roll", attempt.final_session_state)
    calls = [call for turn in case["conversation"] for call in turn["intermediate_data"]["tool_uses"]]
    assert {"name": "roll_die", "args": {"sides": 6}} in calls
    EvalFile(tmp_path / "dice.evalset.json", tmp_path).add([case])
    done = agent_eval("run", "dice.evalset.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
