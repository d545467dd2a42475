"""Messages in OpenAI's form: whatever a server sends becomes a turn or an error, and no exception."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.agents.chat_completions import completions_url, read_completion
from agent_eval_action.agents.chat_messages import (
    TurnMessages,
    gemini_usage,
    history_messages,
    message_text,
    unanswered_calls,
)
from agent_eval_action.results.evalset import Content, FunctionCall, FunctionResponse, Part, PastEvent
from agent_eval_action.results.run_result import AttemptError

ASKED = Content(role="user", parts=(Part(text="hi"),))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
NAMES = (
    "role content tool_calls function_call tool_call_id name refusal reasoning_content id function arguments type text"
)


def shaped(*names: str, inner=VALUES):
    return st.dictionaries(st.sampled_from(names), inner, max_size=5)


CALLS = st.lists(shaped("id", "type", "function", inner=VALUES | shaped("name", "arguments")), max_size=2) | VALUES
ROLES = st.sampled_from(["assistant", "tool", "function", "user", 3, None])
MESSAGES = st.builds(
    lambda given, calls, role: {**given, "tool_calls": calls, "role": role}, shaped(*NAMES.split()), CALLS, ROLES
)
CHOICES = st.builds(
    lambda message, finish, more: {"message": message, "finish_reason": finish, "messages": more},
    MESSAGES | VALUES,
    st.sampled_from(["stop", "length", "content_filter", None, 3]),
    st.lists(MESSAGES, max_size=3) | VALUES,
)


@given(choices=st.lists(CHOICES | VALUES, max_size=2) | VALUES, rest=shaped("usage", "model", "error", "messages"))
def test_any_json_is_a_turn_or_an_error(choices, rest):
    read = read_completion({**rest, "choices": choices})
    if isinstance(read, AttemptError):
        assert read.message
        return
    assert read.invocation(ASKED, "i").user_content == ASKED
    unanswered_calls(read.messages)


@given(VALUES)
def test_what_is_no_completion_is_an_error(value):
    assert isinstance(read_completion(value), AttemptError)


def test_calls_and_results_of_a_history_belong_together():
    first, second = (Part(function_call=FunctionCall(name="roll", args={"n": n})) for n in (1, 2))
    results = [Part(function_response=FunctionResponse(name="roll", response={"result": n})) for n in (1, 2)]
    history = [PastEvent(author="bot", content=Content(parts=parts)) for parts in ((first, second), tuple(results))]
    called, *answered = history_messages(history)
    assert [call["id"] for call in called["tool_calls"]] == [message["tool_call_id"] for message in answered]
    assert [json.loads(message["content"])["result"] for message in answered] == [1, 2]


def test_a_thought_is_kept_and_is_no_answer():
    turn = TurnMessages([{"role": "assistant", "content": "four", "reasoning_content": "hm"}]).invocation(ASKED, "i")
    (event,) = turn.intermediate_data.invocation_events
    assert event.content.parts == (Part(text="hm", thought=True),)
    assert turn.response_text == "four"


def test_parts_of_a_content_are_its_lines():
    assert message_text([{"type": "text", "text": "a"}, "b", {"type": "image_url"}, 3]) == "a\nb"


def test_the_path_of_completions_is_added_where_it_is_missing():
    assert completions_url("http://h/v1/") == "http://h/v1/chat/completions"
    assert completions_url("http://h/v1/chat/completions?k=1") == "http://h/v1/chat/completions?k=1"


def test_usage_of_either_spelling_is_read_with_its_details_and_nothing_that_is_no_count():
    reported = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": True,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": -1},
    }

    assert gemini_usage(reported) == {
        "prompt_token_count": 10,
        "candidates_token_count": 5,
        "cached_content_token_count": 4,
    }
    assert gemini_usage("10 tokens") == {}
