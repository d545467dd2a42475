"""attempts.jsonl and blobs: what is written can be read, media are kept once and apart."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionRequest, TurnDone
from agent_eval_action.agents.recorded import RecordedAgent
from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.evalset import Content, FunctionCall, Invocation, InvocationEvent, InvocationEvents, Part
from agent_eval_action.results.run_result import Attempt, AttemptError, AttemptKey, ErrorKind, Usage
from agent_eval_action.results.transcripts import ATTEMPTS, TranscriptWriter, parse_attempt, read_lines
from agent_eval_action.run.collector import CALLS_LIMIT, excerpt_call, excerpt_turn

HELLO = Content(role="user", parts=(Part(text="hello"),))


def attempt(*parts: Part, case: str = "a", **fields: Any) -> Attempt:
    turn = Invocation(user_content=HELLO, final_response=Content(role="model", parts=parts))
    return Attempt(agent="bot", eval_set="set", case=case, repeat=0, case_digest="d", turns=(turn,), **fields)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    error = AttemptError(kind=ErrorKind.TIMEOUT, message="too long", turn=1)
    written = [attempt(Part(text="hi")), attempt(Part(text="\ud800"), case="b", error=error, tries=3)]
    with TranscriptWriter(OutputFolder.at(tmp_path)) as writer:
        for one in written:
            writer.append(one)
    assert [parse_attempt(tmp_path / ATTEMPTS, n, line) for n, _, line in read_lines(tmp_path / ATTEMPTS)] == written


def test_media_over_the_limit_lie_beside_once_and_small_ones_stay(tmp_path: Path) -> None:
    big = bytes(range(256)) * 400
    parts = [
        Part(inline_data={"mime_type": "image/png", "data": base64.b64encode(raw).decode()}) for raw in (big, b"x")
    ]
    with TranscriptWriter(OutputFolder.at(tmp_path)) as writer:
        writer.append(attempt(*parts))
        writer.append(attempt(parts[0], case="b"))
    digest = hashlib.sha256(big).hexdigest()
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == [digest]
    assert (tmp_path / "blobs" / digest).read_bytes() == big
    first = json.loads((tmp_path / ATTEMPTS).read_text().splitlines()[0])
    kept = [part["inline_data"]["data"] for part in first["turns"][0]["final_response"]["parts"]]
    assert kept == [f"blob:sha256:{digest}", base64.b64encode(b"x").decode()]


@pytest.mark.parametrize("line", [b"{}\n", b"not json\n", b"[]\n", b"[" * 100_000 + b"\n", b'{"agent": 1}\n'])
def test_a_line_that_is_no_attempt_is_named(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(ResultsError, match=r"attempts\.jsonl:7: not an attempt"):
        parse_attempt(tmp_path / ATTEMPTS, 7, line)


async def test_a_recording_answers_as_it_did_and_says_what_it_lacks(tmp_path: Path) -> None:
    with TranscriptWriter(OutputFolder.at(tmp_path)) as writer:
        writer.append(attempt(Part(text="hi"), final_session_state={"n": 1}))
    driver = RecordedAgent("other-name", tmp_path)
    conditions = await driver.start()
    assert not isinstance(conditions, AttemptError)
    key = AttemptKey("other-name", "set", "a", 0)
    session = await driver.open(SessionRequest("app", "user", key=key))
    assert not isinstance(session, AttemptError)
    first, second = await session.turn(HELLO), await session.turn(HELLO)
    assert isinstance(first, TurnDone)
    assert first.invocation.response_text == "hi"
    assert isinstance(second, AttemptError)
    assert "only 1 turn" in second.message
    missing = await driver.open(SessionRequest("app", "user", key=key._replace(repeat=1)))
    assert isinstance(missing, AttemptError)
    assert "no attempt other-name / set / a #2" in missing.message
    other = await driver.open(SessionRequest("app", "user", key=key))
    assert not isinstance(other, AttemptError)
    changed = await other.turn(Content(parts=(Part(text="bye"),)))
    assert isinstance(changed, AttemptError)
    assert "differs from the case's" in changed.message
    await driver.stop()


async def test_a_recording_answers_as_this_changes_agent_did_and_not_as_the_bases(tmp_path: Path) -> None:
    with TranscriptWriter(OutputFolder.at(tmp_path)) as writer:
        writer.append(attempt(Part(text="ours")))
        writer.append(attempt(Part(text="the base's"), arm="base", purpose="control"))
    driver = RecordedAgent("bot", tmp_path)
    await driver.start()
    session = await driver.open(SessionRequest("app", "user", key=AttemptKey("bot", "set", "a", 0)))
    assert not isinstance(session, AttemptError)
    turn = await session.turn(HELLO)
    assert isinstance(turn, TurnDone)
    assert turn.invocation.response_text == "ours"
    await driver.stop()


async def test_a_recording_that_is_not_there_is_an_error_of_the_agent(tmp_path: Path) -> None:
    started = await RecordedAgent("bot", tmp_path / "nowhere").start()
    assert isinstance(started, AttemptError)
    assert "cannot be read" in started.message


def test_usage_counts_what_was_not_reported() -> None:
    reported = {"prompt_token_count": 10, "candidates_token_count": 5, "total_token_count": 15}
    events = (
        InvocationEvent(author="bot", usage_metadata=reported, model_version="m"),
        InvocationEvent(author="bot", model_version="m"),
        InvocationEvent(author="bot", content=Content(parts=(Part(function_call=FunctionCall(name="f")),))),
    )
    turn = Invocation(user_content=HELLO, intermediate_data=InvocationEvents(invocation_events=events))
    assert Usage.of_turns((turn, turn)) == Usage(
        model_calls=4, tool_calls=2, input_tokens=20, output_tokens=10, total_tokens=30, calls_without_usage=2
    )


def test_huge_arguments_are_cut_and_still_distinguished() -> None:
    one = excerpt_call(FunctionCall(name="f", args={"text": "x" * 10_000_000 + "1"}))
    two = excerpt_call(FunctionCall(name="f", args={"text": "x" * 10_000_000 + "2"}))
    assert one != two
    assert max(len(one.model_dump_json()), len(two.model_dump_json())) < 1_000
    many = excerpt_call(FunctionCall(name="f", args={f"k{n}": n for n in range(1000)}))
    assert len(many.model_dump_json()) < 1_000


def test_thousands_of_calls_are_cut_and_still_distinguished() -> None:
    def turn(last: int) -> Invocation:
        calls = [FunctionCall(name="f", args={"n": n}) for n in (*range(5_000), last)]
        parts = tuple(Part(function_call=call) for call in calls)
        events = InvocationEvents(invocation_events=(InvocationEvent(author="bot", content=Content(parts=parts)),))
        return Invocation(user_content=HELLO, intermediate_data=events)

    one, two = excerpt_turn(turn(1)), excerpt_turn(turn(2))
    assert one != two
    assert len(one.calls) == CALLS_LIMIT + 1
