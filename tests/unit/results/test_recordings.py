"""What transcripts add to results: found by attempt, read when asked for, and never believed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.folders import OutputFolder
from agent_eval_action.reports.html import RecordedDetails
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.evalset import (
    Content,
    FunctionCall,
    FunctionResponse,
    InnerEvent,
    IntermediateData,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
    Span,
)
from agent_eval_action.results.run_result import Attempt, AttemptKey, AttemptSummary
from agent_eval_action.results.transcripts import ATTEMPTS, BLOB_BYTES, Recordings, TranscriptWriter, tool_results

BIG = bytes(range(256)) * (BLOB_BYTES // 256 + 1)
KEY = AttemptKey('bot "1"', "sätze", "\u202eevil\\", 3, "base")


def image(raw: bytes) -> Part:
    return Part(inline_data={"mime_type": "image/png", "data": base64.urlsafe_b64encode(raw).decode()})


def attempt(*parts: Part, key: AttemptKey = KEY) -> Attempt:
    span = Span(kind="tool", name="look", start=0.5, seconds=1)
    turn = Invocation(
        user_content=Content(role="user", parts=(Part(text="hello"),)),
        final_response=Content(role="model", parts=parts),
        duration=2,
        spans=(span,),
    )
    return Attempt(**key._asdict(), case_digest="d", turns=(turn,))


def write(folder: Path, *attempts: Attempt) -> Recordings:
    with TranscriptWriter(OutputFolder.at(folder)) as writer:
        for one in attempts:
            writer.append(one)
    found = Recordings.find(folder)
    assert found is not None
    return found


def turns_of(recordings: Recordings, key: AttemptKey) -> tuple[Invocation, ...]:
    with recordings.open() as file:
        return recordings.turns(file, key)


def details(recordings: Recordings, budget: int = 1_000_000) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The turns of the one attempt, and what follows the details of a page."""
    with RecordedDetails(recordings, budget) as made:
        turns = made.turns(CaseKey(*KEY[:3]), AttemptSummary(repeat=KEY.repeat, arm=KEY.arm))
    return turns, json.loads("{" + "".join(made.media_json()).removeprefix(",") + "}")


def test_an_attempt_is_found_by_all_of_its_key(tmp_path: Path) -> None:
    other = attempt(key=KEY._replace(arm="head"))
    recordings = write(tmp_path, other, attempt(image(b"x")))
    assert turns_of(recordings, KEY) == attempt(image(b"x")).turns
    assert turns_of(recordings, KEY._replace(repeat=4)) == ()
    assert Recordings.find(tmp_path / "nowhere") is None


def test_media_come_from_the_line_or_from_blobs_each_once(tmp_path: Path) -> None:
    turns, rest = details(write(tmp_path, attempt(image(BIG), image(BIG), image(b"small"))))
    digests = [item[3] for item in turns[0]["media"]]
    assert digests[0] == digests[1] != digests[2]
    assert {key: base64.b64decode(data) for key, data in rest["media"].items()} == {
        digests[0]: BIG,
        digests[2]: b"small",
    }
    assert rest["left_out"] == 0
    assert turns[0]["spans"] == [["tool", "look", 0.5, 1, None, None]]


def test_calls_of_agents_called_as_tools_are_shown_with_the_call_they_were_made_in(tmp_path: Path) -> None:
    def made(author: str, within: str, identifier: str, answer: str) -> InnerEvent:
        called = FunctionCall(id=identifier, name="find", args={"in": author})
        parts = (
            Part(function_call=called),
            Part(function_response=FunctionResponse(id=identifier, response={"a": answer})),
        )
        return InnerEvent(author=author, within=within, content=Content(parts=parts))

    calls = tuple(FunctionCall(id=name, name="ask") for name in ("1", "2"))
    events = made("clerk", "2", "3", "<b>"), made("clerk", "unknown", "5", "no"), made("archivist", "3", "4", "yes")
    asked = Invocation(
        user_content=Content(parts=(Part(text="go"),)),
        intermediate_data=IntermediateData(tool_uses=calls),
        inner_events=events,
    )
    recordings = write(tmp_path, attempt().model_copy(update={"turns": (asked,)}))
    (turn,), _ = details(recordings)
    assert turn["inner"] == [
        (1, 'clerk: find(in="clerk") → {"a": "<b>"}'),
        (1, 'archivist: find(in="archivist") → {"a": "yes"}'),
    ]
    assert turns_of(recordings, KEY) == (asked,)


def test_media_beyond_the_budget_are_named_and_counted_once(tmp_path: Path) -> None:
    turns, rest = details(write(tmp_path, attempt(image(BIG), image(BIG), image(b"small"))), budget=1000)
    assert [item[4] for item in turns[0]["media"]] == [len(BIG), len(BIG), 5]
    assert list(rest["media"].values()) == [base64.b64encode(b"small").decode()]
    assert rest["left_out"] == 1


def test_a_blob_that_is_not_what_was_sent_is_not_shown(tmp_path: Path) -> None:
    recordings = write(tmp_path, attempt(image(BIG)))
    (blob,) = (tmp_path / "blobs").iterdir()
    blob.write_bytes(b"<script>")
    assert details(recordings)[1] == {"media": {}, "left_out": 1}
    blob.unlink()
    blob.symlink_to("/etc/passwd")
    turns, rest = details(recordings)
    assert turns[0]["media"][0][4] is None
    assert rest == {"media": {}, "left_out": 1}


@pytest.mark.parametrize("digest", ["../../secret", "/etc/passwd", "", "A" * 64])
def test_a_digest_that_is_none_opens_no_file(tmp_path: Path, digest: str) -> None:
    (tmp_path / "secret").write_text("s")
    part = Part(inline_data={"mime_type": "image/png", "data": f"blob:sha256:{digest}"})
    recordings = write(tmp_path / "out" / "in", attempt(part))
    assert details(recordings)[1].get("media", {}) == {}


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"agent":"a","eval_set":"b","case":"c","repeat":0,"turns":7}',
        b'{"agent":"a","eval_set":"b","case":"c",',
    ],
)
def test_a_broken_line_is_an_attempt_without_a_recording(tmp_path: Path, line: bytes) -> None:
    (tmp_path / ATTEMPTS).write_bytes(line + b"\n")
    recordings = Recordings.find(tmp_path)
    assert recordings is not None
    assert turns_of(recordings, AttemptKey("a", "b", "c", 0)) == ()


def test_lone_surrogates_of_an_answer_are_read_back(tmp_path: Path) -> None:
    odd = attempt(Part(text="\ud800"))
    assert turns_of(write(tmp_path, odd), KEY) == odd.turns


def test_results_go_to_their_calls_by_id_then_by_name() -> None:
    calls = [FunctionCall(id="1", name="look"), FunctionCall(name="look"), FunctionCall(id="3", name="other")]
    answers = [
        FunctionResponse(name="look", response={"n": 2}),
        FunctionResponse(id="1", name="look", response={"result": "first"}),
    ]
    parts = [Part(function_call=call) for call in calls] + [Part(function_response=answer) for answer in answers]
    events = tuple(InvocationEvent(author="a", content=Content(parts=(part,))) for part in parts)
    user = Content(parts=(Part(text="hi"),))
    turn = Invocation(user_content=user, intermediate_data=InvocationEvents(invocation_events=events))
    assert tool_results(turn) == ["first", '{"n": 2}', ""]
    expected = Invocation(user_content=user, intermediate_data=IntermediateData(tool_uses=(calls[0],)))
    assert tool_results(expected) == [""]
