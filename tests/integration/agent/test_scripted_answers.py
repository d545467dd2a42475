"""Answers that a case scripts to calls that wait for the user, whose ids no file can know."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import TurnDone
from agent_eval_action.results.evalset import Content, FunctionResponse, Part, PastEvent
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from support.command import agent_eval
from support.live_agents import driving, open_session

CONFIRMATION = "adk_request_confirmation"
SERVE_A2A = """
import sys
import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
sys.path.insert(0, sys.argv[1])
from bank.agent import root_agent
uvicorn.run(to_a2a(root_agent), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
"""


def answers(*responses: dict[str, Any], name: str | None = CONFIRMATION, identifier: str | None = None) -> Content:
    made = (FunctionResponse(id=identifier, name=name, response=response) for response in responses)
    return Content(role="user", parts=tuple(Part(function_response=response) for response in made))


def calling(say, *calls: tuple[str, dict[str, Any]]) -> Content:
    return say(json.dumps(calls))


async def test_confirmed_and_refused_calls_differ_in_what_the_tool_did(drive, say) -> None:
    async with drive("bank") as agent:
        for confirmed, paid in ((True, 5), (False, None)):
            session = await agent.open()
            asked = await session.turn(calling(say, ("pay", {"amount": 5})))
            assert [call.name for call in asked.invocation.tool_calls()] == ["pay", CONFIRMATION]
            done = await session.turn(answers({"confirmed": confirmed}, identifier="of another run"))
            assert isinstance(done, TurnDone), done
            end = await session.close()
            assert end.final_state.get("paid") == paid
            assert (done.invocation.response_text == "Paid 5.") is confirmed


async def test_answers_to_calls_made_at_once_are_taken_in_order(drive, say) -> None:
    async with drive("bank") as agent:
        session = await agent.open()
        await session.turn(calling(say, *(("pay", {"amount": amount}) for amount in (1, 10, 100))))
        await session.turn(answers({"confirmed": False}, {"confirmed": True}))
        again = await session.turn(answers({"confirmed": True}))
        assert isinstance(again, TurnDone), again
        end = await session.close()
        assert end.final_state["paid"] == 110


async def test_other_calls_that_wait_are_answered_by_name(drive, say) -> None:
    async with drive("bank") as agent:
        session = await agent.open()
        asked = await session.turn(calling(say, ("ask_boss", {"question": "May I?"})))
        assert asked.invocation.tool_responses()[0].response == {"status": "asked", "question": "May I?"}
        done = await session.turn(answers({"status": "yes"}, name="ask_boss"))
        assert json.loads(done.invocation.response_text) == [{"status": "yes"}]


async def test_a_call_of_the_history_can_be_answered(drive) -> None:
    call = {"id": "c1", "name": "ask_boss", "args": {"question": "May I?"}}
    history = (
        PastEvent(author="user", content=Content(role="user", parts=(Part(text="Ask."),))),
        PastEvent(author="model", content=Content(role="model", parts=(Part(function_call=call),))),
    )
    async with drive("bank") as agent:
        session = await agent.open(history=history)
        done = await session.turn(answers({"status": "no"}, name="ask_boss"))
        assert json.loads(done.invocation.response_text) == [{"status": "no"}]


@pytest.mark.parametrize(
    ("name", "said"), [("ask_boss", "of `ask_boss`"), ("pay", "of `pay`"), (None, "that it does not name")]
)
async def test_an_answer_that_nobody_waits_for_is_an_error(drive, say, name, said) -> None:
    async with drive("bank") as agent:
        session = await agent.open()
        await session.turn(calling(say, ("pay", {"amount": 5})))
        failed = await session.turn(answers({"confirmed": True}, name=name))
        assert isinstance(failed, AttemptError)
        assert (failed.kind, failed.turn) == (ErrorKind.NOT_ASKED, 1)
        assert said in failed.message
        assert f"`{CONFIRMATION}`" in failed.message


async def test_an_agent_that_no_longer_asks_is_an_error(drive, say) -> None:
    async with drive("shop/shop") as agent:
        session = await agent.open()
        await session.turn(say("buy"))
        failed = await session.turn(answers({"confirmed": True}))
        assert isinstance(failed, AttemptError)
        assert failed.kind is ErrorKind.NOT_ASKED
        assert "none" in failed.message


@pytest.mark.exhaustive
async def test_confirmations_behind_googles_own_server(adk213_python, folders, tmp_path, say) -> None:
    shutil.copytree(folders / "bank", tmp_path / "agents" / "bot")
    program = str(adk213_python.with_name("adk"))
    command = (program, "api_server", "--port", "{port}", str(tmp_path / "agents"))
    async with driving(tmp_path, {"PATH": os.environ["PATH"]}, driver="adk_server", command=command) as driver:
        for confirmed, paid in ((True, 5), (False, None)):
            session = await open_session(driver)
            await session.turn(calling(say, ("pay", {"amount": 5})))
            done = await session.turn(answers({"confirmed": confirmed}))
            failed = await session.turn(answers({"confirmed": confirmed}))
            end = await session.close()
            assert isinstance(done, TurnDone), done
            assert end.final_state.get("paid") == paid
            assert isinstance(failed, AttemptError)
            assert failed.kind is ErrorKind.NOT_ASKED


@pytest.mark.exhaustive
async def test_confirmations_behind_a2a(a2a_python, folders, tmp_path, say) -> None:
    pytest.importorskip("a2a", reason="a2a-sdk is not installed: `make setup` installs it")
    program = tmp_path / "serve.py"
    program.write_text(SERVE_A2A)
    command = (str(a2a_python), str(program), str(folders), "{port}")
    async with driving(tmp_path, {"PATH": os.environ["PATH"]}, driver="a2a", command=command) as driver:
        for confirmed in (True, False):
            session = await open_session(driver)
            asked = await session.turn(calling(say, ("pay", {"amount": 5})))
            assert [call.name for call in asked.invocation.tool_calls()] == ["pay", CONFIRMATION]
            done = await session.turn(answers({"confirmed": confirmed}))
            failed = await session.turn(answers({"confirmed": confirmed}))
            await session.close()
            assert isinstance(done, TurnDone), done
            assert (done.invocation.response_text == "Paid 5.") is confirmed
            assert isinstance(failed, AttemptError)
            assert failed.kind is ErrorKind.NOT_ASKED


@pytest.mark.exhaustive
def test_the_case_of_the_documentation(adk213_python, folders, tmp_path) -> None:
    """Confirmed it passes; refused its tool does nothing; an answer to what nobody asked is not measured."""
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
    (block,) = (found for found in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if CONFIRMATION in found)
    (criteria,) = (found for found in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if CONFIRMATION in found)
    folder = tmp_path / "bank"
    shutil.copytree(folders / "bank", folder)
    (tmp_path / "agent-eval.yaml").write_text(f"agent: {{path: bank, python: {adk213_python}}}\n{criteria}")
    evals = json.loads(block)
    (case,) = evals["eval_cases"]
    for name, old, new in (("refused", '"confirmed": true', '"confirmed": false'), ("misnamed", CONFIRMATION, "pay")):
        answered, changed = case["conversation"][1], copy.deepcopy(case)
        changed["conversation"][1] = json.loads(json.dumps(answered).replace(old, new))
        evals["eval_cases"].append({**changed, "eval_id": name})
    (folder / "bank.evalset.json").write_text(json.dumps(evals))
    done = agent_eval("run", cwd=tmp_path, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert done.returncode == 1, done.stderr
    results = json.loads((tmp_path / ".agent-eval/out/results.json").read_text())
    attempts = {case["case"]: case["attempts"][0] for case in results["sets"][0]["cases"]}
    scores = {
        name: sorted(score["score"] for score in attempt["scores"] if score["score"] is not None)
        for name, attempt in attempts.items()
    }
    assert scores["payment_is_confirmed"] == [1.0, 1.0]
    assert scores["refused"] == [0.0, 1.0]
    assert attempts["misnamed"]["error"]["kind"] == "not_asked"
    assert "not_asked: the case answers a call of `pay`" in done.stderr
