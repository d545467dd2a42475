"""Sessions whose models answer from a recording: what is replayed, what ends a turn, and that nobody else is asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionEnd, SessionRequest, TurnDone
from agent_eval_action.config.criteria import REPLAY_CRITERIA
from agent_eval_action.criteria import build
from agent_eval_action.criteria.base import Sample
from agent_eval_action.formats import load_eval_file
from agent_eval_action.results.evalset import Invocation, ReplayCase
from agent_eval_action.results.run_result import AttemptError, CriterionScore, ErrorKind

AGENT = '''
import random
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.tools.long_running_tool import LongRunningFunctionTool


class Paid(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        Path(__file__).with_name("asked").touch()
        raise RuntimeError("a model was asked")
        yield


async def roll(sides: int) -> dict:
    """Roll a die."""
    return {"rolled": random.randint(1, sides), "lucky": random.random() < 0.5}


def approve(what: str) -> dict:
    """Ask the boss."""
    return {"status": "pending"}


root_agent = LlmAgent(name="dicer", model=Paid(model="paid"), tools=[roll, LongRunningFunctionTool(approve)])
'''


SAMPLE = Path(__file__).parents[2] / "formats" / "samples" / "adk_conformance" / "spec.yaml"
CONCIERGE = '''
from google.adk.agents import LlmAgent


def weather(city: str) -> dict:
    """The weather of a city."""
    return {"sky": "clear"}


root_agent = LlmAgent(name="concierge", model="gemini-2.5-flash", instruction="Help travellers.", tools=[weather])
'''


def event(author: str, role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    node = {} if author == "user" else {"nodeInfo": {"path": "dicer@1"}}
    return {"author": author, "content": {"role": role, "parts": list(parts)}, **node, **more}


def call(name: str, number: int, **args: Any) -> dict[str, Any]:
    return {"functionCall": {"id": f"fc-{number}", "name": name, "args": args}}


def result(name: str, number: int, **response: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": f"fc-{number}", "name": name, "response": response}}


ASK = event("user", "user", {"text": "Roll."})
ROLL = event("dicer", "model", call("roll", 1, sides=6))
ANSWER = event("dicer", "model", {"text": "Done."})


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "dicer"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import agent\n")
    (folder / "agent.py").write_text(AGENT)
    return folder


def fixture(agent: Path, *events: dict[str, Any], **more: Any) -> ReplayCase:
    path = agent / "tests" / "roll.json"
    path.write_text(json.dumps({"events": events, **more}))
    (case,) = load_eval_file(path, workspace=agent.parent).eval_set.eval_cases
    assert isinstance(case, ReplayCase)
    return case


async def replay(driver: Any, case: ReplayCase) -> tuple[CriterionScore, tuple[Invocation, ...]]:
    session = await driver.open(SessionRequest("app", "u", replay=case.replay))
    assert not isinstance(session, AttemptError), session
    turns = [await session.turn(turn.user_content) for turn in case.turns]
    assert all(isinstance(turn, TurnDone) for turn in turns), turns
    assert isinstance(await session.close(), SessionEnd)
    made = tuple(turn.invocation for turn in turns)
    (criterion,) = build(REPLAY_CRITERIA)
    return await criterion.score(Sample(case, made)), made


async def test_models_answer_from_the_recording_and_tools_run_with_the_recorded_random_numbers(drive, agent):
    rolled = event("dicer", "user", result("roll", 1, rolled=5, lucky=False))
    mocks = {"random.randint": [5], "random.random": [0.9]}
    async with drive(agent) as started:
        score, (turn,) = await replay(started.driver, fixture(agent, ASK, ROLL, rolled, ANSWER, mocks=mocks))
        assert score.score == 1, score.reason
        assert turn.response_text == "Done."
        assert not any(span.kind == "model" for span in turn.spans)
        assert turn.app_details is not None
        assert "dicer" in turn.app_details.agent_details
    assert not (agent / "asked").exists()


async def test_sessions_at_once_draw_the_same_random_numbers(drive, agent):
    case = fixture(agent, ASK, ROLL, ANSWER)
    async with drive(agent) as started:
        made = await asyncio.gather(*(replay(started.driver, case) for _ in range(8)))
    rolled = [turn.tool_responses()[0].response for _, (turn,) in made]
    assert all(one == {"rolled": 6, "lucky": True} for one in rolled), rolled  # of random.seed(42)


async def test_a_model_that_is_asked_once_more_is_not_asked_and_the_turn_says_so(drive, agent):
    async with drive(agent) as started:
        score, (turn, after) = await replay(
            started.driver, fixture(agent, ASK, ROLL, event("user", "user", {"text": "?"}))
        )
    assert (score.score, turn.tool_calls()[0].name) == (0, "roll")
    assert "turn 1: the agent asks a model for the second time; 1 recorded" in score.reason
    assert after.raw_events
    assert not (agent / "asked").exists()


async def test_an_answer_of_the_user_goes_to_the_call_that_waits_for_it(drive, agent):
    asked = event("dicer", "model", call("approve", 1, what="it"), longRunningToolIds=["fc-1"])
    events = [ASK, asked, event("dicer", "user", result("approve", 1, status="pending"))]
    events += [
        event("dicer", "model", {"text": "Wait."}),
        event("user", "user", result("approve", 1, status="yes")),
        ANSWER,
    ]
    async with drive(agent) as started:
        score, turns = await replay(started.driver, fixture(agent, *events))
        assert score.score == 1, score.reason
        assert turns[1].response_text == "Done."
        elsewhere = event("user", "user", result("approve", 7, status="yes"))
        score, turns = await replay(started.driver, fixture(agent, *events[:4], elsewhere))
    assert score.score == 1, score.reason
    assert turns[1].raw_events == ()


async def test_an_agent_that_raises_is_another_one(drive, agent):
    (agent / "agent.py").write_text(AGENT.replace("random.randint(1, sides)", "1 // 0"))
    async with drive(agent) as started:
        score, _ = await replay(started.driver, fixture(agent, ASK, ROLL, ANSWER))
    assert "the agent raised ZeroDivisionError" in score.reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('{"sky": "clear"}', '{"sky": "grey"}', ""),  # google-adk takes the recorded result
        ("travellers.", "pilots.", "LLM request mismatch in turn 0 for agent 'concierge' (index 0): recorded …"),
        ("def weather(city: str)", "def weather(city: str, day: int = 0)", "LLM request mismatch"),
        (
            "tools=[weather]",
            'tools=[weather], output_key="said"',
            'actions is new: {"state_delta": {"said": "Clear."}}',
        ),
        (
            'return {"sky"',
            'raise ValueError("rain")\n    return {"sky"',
            "the agent raised RuntimeError: Error in plugin",
        ),
    ],
)
async def test_a_conformance_test_is_replayed_by_google_adk_in_both_modes(drive, agent, old, new, reason):
    assert old in CONCIERGE
    (agent / "agent.py").write_text(CONCIERGE.replace(old, new))
    async with drive(agent) as started:
        for case in load_eval_file(SAMPLE, workspace=SAMPLE.parent).eval_set.eval_cases:
            assert isinstance(case, ReplayCase)
            score, _ = await replay(started.driver, case)
            assert score.score == (not reason), score.reason
            assert reason in score.reason


async def test_recordings_that_cannot_be_read_are_no_verdict_on_the_agent(drive, agent):
    (agent / "agent.py").write_text(CONCIERGE)
    case, _ = load_eval_file(SAMPLE, workspace=SAMPLE.parent).eval_set.eval_cases
    assert isinstance(case, ReplayCase)
    async with drive(agent) as started:
        broken = case.replay.model_copy(update={"recordings": "recordings: 5"})
        session = await started.driver.open(SessionRequest("app", "u", replay=broken))
        turn = await session.turn(case.turns[0].user_content)
        await session.close()
    assert (turn.kind, "Failed to load recordings" in turn.message) == (ErrorKind.ENVIRONMENT, True)


async def test_a_live_session_beside_it_asks_its_model(drive, agent):
    async with drive(agent) as started:
        await replay(started.driver, fixture(agent, ASK, ANSWER))
        session = await started.driver.open(SessionRequest("dicer", "u"))
        turn = await session.turn(fixture(agent, ASK, ANSWER).turns[0].user_content)
        await session.close()
    assert isinstance(turn, AttemptError)
    assert (turn.kind, "a model was asked" in turn.message) == (ErrorKind.EXCEPTION, True)
    assert (agent / "asked").exists()
