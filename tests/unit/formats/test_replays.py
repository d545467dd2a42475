"""Recordings that are replayed: which of their events are answers of a model, and what is said of broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import case_digest, load_eval_file
from agent_eval_action.results.evalset import EvalCase, ReplayCase


def said(text: str, author: str = "bot", role: str = "model", **more: Any) -> dict[str, Any]:
    return {"author": author, "content": {"role": role, "parts": [{"text": text}]}, **more}


def did(kind: str, name: str, author: str = "bot", role: str = "model", **more: Any) -> dict[str, Any]:
    return {"author": author, "content": {"role": role, "parts": [{kind: {"id": "fc-1", "name": name}}]}, **more}


ASK = said("go", "user", "user")


def fixture(folder: Path, *events: dict[str, Any], **more: Any) -> EvalCase:
    path = folder / "tests" / "trip.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"events": [ASK, *events], **more}))
    (case,) = load_eval_file(path, workspace=folder).eval_set.eval_cases
    return case


def answers(case: EvalCase) -> list[str]:
    assert isinstance(case, ReplayCase)
    parts = [content["parts"][0] for content in case.replay.answers]
    return [part.get("text") or part["function_call"]["name"] for part in parts]


def test_only_a_session_in_a_folder_of_tests_is_replayed(tmp_path):
    assert isinstance(fixture(tmp_path, said("Hi.")), ReplayCase)
    moved = (tmp_path / "tests" / "trip.json").rename(tmp_path / "trip.json")
    (case,) = load_eval_file(moved, workspace=tmp_path).eval_set.eval_cases
    assert not isinstance(case, ReplayCase)
    assert case.turns[0].response_text == "Hi."


def test_answers_are_what_a_model_said_and_nobody_in_its_name(tmp_path):
    case = fixture(
        tmp_path,
        did("functionCall", "look"),
        did("functionResponse", "look", role="user"),
        did("functionCall", "adk_request_confirmation"),
        did("functionCall", "adk_request_input", nodeInfo={"path": "flow@1/ask@2"}),
        did("functionCall", "adk_request_input", nodeInfo={"path": "bot@1"}),
        did("functionCall", "set_model_response"),
        did("functionResponse", "set_model_response", role="user"),
        said("made of the response that was set"),
        said("half", partial=True),
        said("whole"),
    )
    assert answers(case) == ["look", "adk_request_input", "set_model_response", "whole"]


def test_parallel_agents_answer_in_the_order_of_their_numbers(tmp_path):
    case = fixture(tmp_path, said("b", "w__1"), said("a", "w__0"), said("d", "v__1"), said("c", "v__0"), said("end"))
    assert answers(case) == ["a", "b", "c", "d", "end"]


def test_what_an_agent_says_in_the_users_name_is_an_event_and_no_message(tmp_path):
    inner = said("from inside", "user", "user", nodeInfo={"path": "flow@1"})
    case = fixture(tmp_path, said("1"), inner, said("again", "user", "user"), said("2"))
    assert isinstance(case, ReplayCase)
    assert [turn.user_content.text for turn in case.turns] == ["go", "again"]
    assert [len(events) for events in case.replay.expected] == [2, 1]


def test_another_answer_is_another_case(tmp_path):
    first = case_digest(fixture(tmp_path, said("Hi.", id="e-1")))
    assert case_digest(fixture(tmp_path, said("Hi.", id="e-9"))) == first
    assert case_digest(fixture(tmp_path, said("Ho."))) != first
    assert case_digest(fixture(tmp_path, said("Hi."), mocks={"random.random": [0.5]})) != first


SPEC = "description: d\nagent: group/bot\ninitial_state: {n: 1}\nuser_messages:\n- text: go\n  state_delta: {m: 2}\n"


def conformance(folder: Path, **files: str) -> Any:
    place = folder / "tests" / "core" / "trip"
    place.mkdir(parents=True, exist_ok=True)
    session = json.dumps({"id": "s", "events": [ASK, said("Hi.")]})
    whole = {"spec": SPEC, "generated-recordings": "recordings: []", "generated-session": session} | files
    for name, text in whole.items():
        (place / f"{name}.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    return load_eval_file(place / "spec.yaml", workspace=folder)


def test_a_conformance_test_is_a_case_for_each_way_it_was_recorded(tmp_path):
    session = json.dumps({"events": [ASK, said("Ho.")]})
    streamed = {"generated-recordings-sse": "recordings: [ ]", "generated-session-sse": session}
    loaded = conformance(tmp_path, **streamed)
    whole, parts = loaded.eval_set.eval_cases
    assert loaded.format == "adk_conformance"
    assert loaded.eval_set.eval_set_id == "tests/core/trip"
    assert (whole.eval_id, parts.eval_id) == ("trip", "trip-sse")
    assert (whole.replay.streamed, parts.replay.streamed) == (False, True)
    assert (whole.replay.recordings, parts.replay.recordings) == ("recordings: []", "recordings: [ ]")
    assert whole.replay.state_deltas == ({"m": 2},)
    assert (whole.session_input.app_name, whole.session_input.state) == ("bot", {"n": 1})
    assert (whole.turns[0].response_text, parts.turns[0].response_text) == ("Hi.", "Ho.")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"generated-session": "{}"}, "generated-session.yaml beside it has 0 messages of the user, and this 1"),
        ({"generated-session": "- ["}, "generated-session.yaml"),
        (
            {"generated-session": '{"events": [{"author": "user", "content": 5}]}'},
            "generated-session.yaml beside it is no session",
        ),
        ({"generated-recordings": "\udcff"}, "generated-recordings.yaml beside it cannot be read"),
        ({"spec": SPEC + "- text: and\n"}, "has 1 messages of the user, and this 2"),
        ({"spec": "description: d\nagent: a\nuser_messages: []\n"}, "there is nothing to send to the agent"),
    ],
)
def test_a_broken_conformance_test_is_refused_by_name(tmp_path, files, message):
    with pytest.raises(EvalFileError) as caught:
        conformance(tmp_path, **files)
    assert message in str(caught.value)


def test_a_conformance_test_without_recordings_says_how_they_are_made(tmp_path):
    conformance(tmp_path)
    (tmp_path / "tests/core/trip/generated-recordings.yaml").unlink()
    with pytest.raises(EvalFileError, match="adk conformance record"):
        load_eval_file(tmp_path / "tests/core/trip/spec.yaml", workspace=tmp_path)


def test_recordings_outside_of_the_workspace_are_not_read(tmp_path):
    conformance(tmp_path)
    (tmp_path / "tests/core/trip/generated-recordings.yaml").rename(tmp_path / "secret")
    inner = tmp_path / "tests/core/trip"
    (inner / "generated-recordings.yaml").symlink_to(tmp_path / "secret")
    with pytest.raises(EvalFileError, match="beside it cannot be read"):
        load_eval_file(inner / "spec.yaml", workspace=inner)
