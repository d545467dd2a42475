"""Recordings that other tools made: which case each one answers, and what is not recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import AgentSession, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.agents.recorded import RecordedAgent
from agent_eval_action.results.evalset import Content, Invocation, Part
from agent_eval_action.results.run_result import AgentConditions, Attempt, AttemptError, AttemptKey


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [{"text": text}]}


def events(*texts: str) -> list[dict[str, Any]]:
    """Of a conversation in which the user and the agent speak in turns."""
    authors = [("user", "user"), ("bot", "model")]
    return [{"author": authors[n % 2][0], "content": said(text, authors[n % 2][1])} for n, text in enumerate(texts)]


def write_session(folder: Path, name: str, *texts: str, **more: Any) -> None:
    value = {"id": "s", "appName": "bot", "userId": "u", "events": events(*texts), **more}
    (folder / name).write_text(json.dumps(value))


def write_traces(folder: Path, name: str = "run.json", /, **answers: str) -> None:
    cases = [
        {"eval_case_id": case, "agent_data": {"agents": {}, "turns": [{"events": events(f"ask {case}", answer)}]}}
        for case, answer in answers.items()
    ]
    (folder / "traces").mkdir(parents=True, exist_ok=True)
    (folder / "traces" / name).write_text(json.dumps({"eval_cases": cases}))


def write_results(folder: Path, at: float, eval_set: str, answer: str) -> None:
    turn = {"actual_invocation": {"user_content": said("hi"), "final_response": said(answer, "model")}}
    case = {
        "eval_id": "a",
        "final_eval_status": 1,
        "eval_metric_result_per_invocation": [turn],
        "session_details": {"app_name": "bot", "state": {"n": at}},
    }
    value = {"eval_set_id": eval_set, "creation_timestamp": at, "eval_case_results": [case]}
    history = folder / ".adk" / "eval_history"
    history.mkdir(parents=True, exist_ok=True)
    (history / f"bot_{eval_set}_{at}.evalset_result.json").write_text(json.dumps(value))


async def opened(
    folder: Path, case: str, *messages: str, repeat: int = 0, eval_set: str = "evals/basic"
) -> tuple[AgentSession | AttemptError, list[Content]]:
    driver = RecordedAgent("bot", folder)
    assert isinstance(await driver.start(), AgentConditions)
    sent = [Content(parts=(Part(text=text),)) for text in messages]
    key = AttemptKey("bot", eval_set, case, repeat)
    return await driver.open(SessionRequest("app", "user", key=key, messages=tuple(sent))), sent


async def answers(*args: Any, **rest: Any) -> list[str] | str:
    """The text of each turn, or why there is none."""
    session, messages = await opened(*args, **rest)
    if isinstance(session, AttemptError):
        return session.message
    made = [await session.turn(message) for message in messages]
    return [turn.invocation.response_text if isinstance(turn, TurnDone) else turn.message for turn in made]


async def test_a_session_answers_the_case_of_its_name_or_of_its_messages(tmp_path: Path):
    write_session(tmp_path, "greeting.session.json", "hi", "hello", "bye", "good bye", state={"n": 1})
    write_session(tmp_path, "other.session.json", "hi", "wrong", "what?", "wrong")
    assert await answers(tmp_path, "greeting", "hi", "bye") == ["hello", "good bye"]
    assert await answers(tmp_path, "named otherwise", "hi", "bye") == ["hello", "good bye"]
    session, _ = await opened(tmp_path, "greeting", "hi", "bye")
    assert not isinstance(session, AttemptError)
    assert await session.close() == SessionEnd({"n": 1})


async def test_a_case_without_a_recording_is_named(tmp_path: Path):
    write_session(tmp_path, "greeting.session.json", "hi", "hello")
    message = await answers(tmp_path, "farewell", "bye")
    assert "no attempt bot / evals/basic / farewell #1" in message


async def test_a_case_that_asks_something_else_now_is_not_measured(tmp_path: Path):
    write_session(tmp_path, "greeting.session.json", "hi", "hello")
    (message,) = await answers(tmp_path, "greeting", "good morning")
    assert "differs from the case's" in message


async def test_turns_that_the_case_has_no_more_make_it_another_one(tmp_path: Path):
    write_session(tmp_path, "greeting.session.json", "hi", "hello", "bye", "good bye")
    session, (message,) = await opened(tmp_path, "greeting", "hi")
    assert not isinstance(session, AttemptError)
    assert isinstance(await session.turn(message), TurnDone)
    assert isinstance(await session.close(), AttemptError)


async def test_a_state_that_was_not_recorded_is_not_known(tmp_path: Path):
    write_traces(tmp_path, a="first")
    session, (message,) = await opened(tmp_path / "traces", "a", "ask a")
    assert not isinstance(session, AttemptError)
    assert isinstance(await session.turn(message), TurnDone)
    assert await session.close() == SessionEnd(None)


async def test_an_agent_has_its_own_attempts_of_a_run_of_several(tmp_path: Path):
    lines = [
        Attempt(
            agent=agent,
            eval_set="evals/basic",
            case="a",
            repeat=0,
            case_digest="",
            turns=(Invocation(user_content=said("hi"), final_response=said(agent, "model")),),
        ).model_dump_json()
        for agent in ("bot", "other")
    ]
    key = AttemptKey("bot", "evals/basic", "a", 0)
    third = lines[0].replace('"bot"', '"third"')
    for recorded, expected in ((lines, "bot"), (lines[1:], "other"), ([third, lines[1]], "")):
        (tmp_path / "attempts.jsonl").write_text("\n".join(recorded) + "\n")
        driver = RecordedAgent("bot", tmp_path)
        assert isinstance(await driver.start(), AgentConditions)
        session = await driver.open(SessionRequest("app", "user", key=key))
        await driver.stop()
        if isinstance(session, AttemptError):
            assert not expected
            continue
        done = await session.turn(Content(parts=(Part(text="hi"),)))
        assert isinstance(done, TurnDone)
        assert done.invocation.response_text == expected


async def test_traces_of_agents_cli_answer_their_cases(tmp_path: Path):
    write_traces(tmp_path / "artifacts", a="first", b="second")
    assert await answers(tmp_path, "b", "ask b") == ["second"]
    assert await answers(tmp_path / "artifacts" / "traces", "a", "ask a") == ["first"]


async def test_of_several_runs_of_agents_cli_the_newest_counts(tmp_path: Path):
    write_traces(tmp_path / "artifacts", "traces_20260102_000000.json", a="new")
    write_traces(tmp_path / "artifacts", "traces_20260101_000000.json", a="old", b="only here")
    assert await answers(tmp_path, "a", "ask a") == ["new"]
    assert "no attempt" in await answers(tmp_path, "a", "ask a", repeat=1)
    assert await answers(tmp_path, "b", "ask b") == ["only here"]


async def test_results_of_google_adk_are_repeats_in_their_order_and_of_their_set(tmp_path: Path):
    for at, answer in ((2.0, "later"), (1.0, "earlier")):
        write_results(tmp_path, at, "basic", answer)
    write_results(tmp_path, 0.5, "other", "of another set")
    found = [await answers(tmp_path, "a", "hi", repeat=repeat) for repeat in range(2)]
    assert found == [["earlier"], ["later"]]
    assert "no attempt" in await answers(tmp_path, "a", "hi", repeat=2)
    assert await answers(tmp_path, "a", "hi", eval_set="evals/other") == ["of another set"]


async def test_a_session_that_ended_in_an_error_ends_in_it_again(tmp_path: Path):
    failed = {"author": "bot", "errorCode": "503", "errorMessage": "overloaded"}
    write_session(tmp_path, "a.session.json", events=[*events("hi"), failed])
    (message,) = await answers(tmp_path, "a", "hi")
    assert message == "503: overloaded"


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "[" * 100_000, '{"events": [{"author": "user", "content": 1}]}', '"\\ud800"', '{"events": [1]}'],
)
async def test_what_is_no_recording_is_passed_over(tmp_path: Path, text: str):
    (tmp_path / "notes.json").write_text(text)
    write_session(tmp_path, "a.session.json", "hi", "hello")
    assert await answers(tmp_path, "a", "hi") == ["hello"]


def exported(*spans: dict[str, Any]) -> str:
    """A request of OTLP JSON. Of a span are given its trace, its start, and its attributes."""
    made = [
        {
            "traceId": span["trace"] * 32,
            "spanId": f"{span['at']:016x}",
            "startTimeUnixNano": str(span["at"]),
            "endTimeUnixNano": str(span["at"] + 1),
            "attributes": [{"key": name, "value": {"stringValue": text}} for name, text in span["of"].items()],
        }
        for span in spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]})


def chat(said: str, answer: str, **more: str) -> dict[str, str]:
    messages = (("input", "user", said), ("output", "assistant", answer))
    return {
        "gen_ai.operation.name": "chat",
        **{
            f"gen_ai.{way}.messages": json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
            for way, role, text in messages
        },
        **more,
    }


ROLL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "roll",
    "gen_ai.tool.call.arguments": '{"sides": 6}',
}


@pytest.mark.parametrize("lines", [True, False], ids=["lines", "one document"])
async def test_a_trace_of_otlp_json_is_a_turn(tmp_path: Path, lines: bool):
    spans = [
        {"trace": "b", "at": 30, "of": chat("bye", "good bye", **{"gen_ai.conversation.id": "greeting"})},
        {"trace": "a", "at": 10, "of": chat("hi", "", **{"gen_ai.conversation.id": "greeting"})},
        {"trace": "a", "at": 20, "of": ROLL},
        {"trace": "a", "at": 25, "of": chat("hi", "hello")},
        {"trace": "c", "at": 1, "of": chat("roll", "rolled")},
    ]
    text = "\n\n".join(exported(span) for span in spans) if lines else exported(*spans)
    (tmp_path / "spans.jsonl").write_text(text + "\n")
    assert await answers(tmp_path, "greeting", "hi", "bye") == ["hello", "good bye"]
    assert await answers(tmp_path, "named otherwise", "roll") == ["rolled"]
    session, sent = await opened(tmp_path, "greeting", "hi", "bye")
    done = await session.turn(sent[0])
    assert [(call.name, call.args) for call in done.invocation.tool_calls()] == [("roll", {"sides": 6})]


async def test_a_line_of_otlp_json_that_is_none_is_named(tmp_path: Path):
    (tmp_path / "spans.json").write_text(exported() + '\n{"resourceSpans": [1]}\n')
    started = await RecordedAgent("bot", tmp_path).start()
    assert isinstance(started, AttemptError)
    assert "spans.json cannot be read: line 2" in started.message


async def test_a_folder_without_a_recording_is_an_error_of_the_agent(tmp_path: Path):
    (tmp_path / "notes.json").write_text("{}")
    assert isinstance(await RecordedAgent("bot", tmp_path).start(), AttemptError)
