"""Times, retries and what the model got."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from agent_eval_worker_rate import Start
from agent_eval_worker_turn import Turn, TurnSpan, details_of, make_retry_options, union_seconds
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

POINT = st.integers(0, 40)


@given(st.lists(st.tuples(POINT, POINT).map(lambda pair: (min(pair), max(pair)))))
def test_overlap_counts_once(intervals: list[tuple[int, int]]) -> None:
    covered = {second for start, end in intervals for second in range(start, end)}
    assert union_seconds([(float(a), float(b)) for a, b in intervals]) == len(covered)


def test_a_tools_time_is_without_the_models_inside() -> None:
    record = Turn()
    record.spans = [TurnSpan("model", "a", 0.0, 1.0), TurnSpan("model", "a", 3.0, 1.0)]
    record.spans += [TurnSpan("tool", "t", 2.0, 4.0), TurnSpan("tool", "t", 2.5, 2.5), TurnSpan("wait", "", 6.0, 3.0)]
    assert record.durations() == (2.0, 3.0)


def test_only_whole_answers_end_a_call_and_open_ones_do_not_count() -> None:
    record = Turn()
    record.model_asked("a", None, Start(time.monotonic()))
    record.model_answered("a", SimpleNamespace(partial=True))
    assert record.spans == []
    assert "the model of `a`" in record.doing()
    record.tool_called(record, "look")
    assert record.doing().startswith("tool `look` for 0.0 s")
    assert record.durations() == (0.0, 0.0)
    usage = SimpleNamespace(prompt_token_count=7, candidates_token_count=7.5)
    record.model_answered("a", SimpleNamespace(partial=None, usage_metadata=usage))
    record.tool_ended(record)
    assert record.doing() == ""
    model, tool = record.timeline()
    assert [(span["kind"], span["name"]) for span in (model, tool)] == [("model", "a"), ("tool", "look")]
    assert (model["input_tokens"], model["output_tokens"]) == (7, None), "what is no number was not reported"
    assert 0 <= model["start"] <= tool["start"]


@pytest.mark.parametrize(("timeout_s", "attempts"), [(1, 1), (2, 2), (10, 3), (30, 5), (3600, 5)])
def test_retries_fit_in_half_a_turn(timeout_s: float, attempts: int) -> None:
    """1 + 2 + 4 + 8 seconds is what five attempts wait at most."""
    options = make_retry_options(timeout_s)
    assert options.attempts == attempts
    assert 429 not in options.http_status_codes, "calls that were refused are made again by the plugin, at a pace"


def test_instructions_of_every_form() -> None:
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="f", description="d")])

    class Request:
        config = types.GenerateContentConfig(system_instruction="Do.", tools=[tool, len])

    assert details_of(Request()) == {
        "instructions": "Do.",
        "tool_declarations": [{"function_declarations": [{"name": "f", "description": "d"}]}, {"name": "len"}],
    }
    content = types.Content(parts=[types.Part(text="One."), types.Part(text="Two.")])
    for said in (content, ["One.", types.Part(text="Two.")]):
        Request.config = types.GenerateContentConfig(system_instruction=said)
        assert details_of(Request())["instructions"] == "One.\nTwo."
    Request.config = types.GenerateContentConfig()
    assert details_of(Request()) == {"instructions": "", "tool_declarations": []}
