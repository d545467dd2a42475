"""Spans in each convention, as instrumentations write them, and what they say of a turn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.results.evalset import Content, Invocation, Part
from agent_eval_action.telemetry.spans import TracedCall, TraceSpan
from agent_eval_action.telemetry.trajectory import Trajectory, with_trace

ARGS = {"sides": 6, "of": {"a": [1, None]}}
TEXT = json.dumps(ARGS)
TOOLS: dict[str, dict[str, Any]] = {
    "OpenTelemetry": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "roll",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": TEXT,
        "gen_ai.tool.call.result": '{"rolled": 4}',
    },
    "ADK": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "roll",
        "gen_ai.tool.call.id": "c1",
        "gcp.vertex.agent.tool_call_args": TEXT,
        "gcp.vertex.agent.tool_response": '{"rolled": 4}',
    },
    "OpenInference": {
        "openinference.span.kind": "TOOL",
        "tool.name": "roll",
        "tool_call.id": "c1",
        "tool.parameters": '{"type": "object"}',
        "input.value": str(ARGS),
        "output.value": '{"rolled": 4}',
    },
    "OpenLLMetry": {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "roll",
        "gen_ai.tool.call.id": "c1",
        "traceloop.entity.input": TEXT,
        "traceloop.entity.output": '{"rolled": 4}',
    },
}
CALL = {"id": "c1", "name": "roll", "arguments": TEXT}
MODELS: dict[str, dict[str, Any]] = {
    "OpenTelemetry": {
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "tool_call", **CALL}]}]),
        }
    },
    "events": {
        "attributes": {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"},
        "events": [
            [
                "gen_ai.choice",
                {"message": json.dumps({"tool_calls": [{"id": "c1", "type": "function", "function": CALL}]})},
            ]
        ],
    },
    "ADK": {
        "attributes": {
            "gcp.vertex.agent.llm_request": "{}",
            "gcp.vertex.agent.llm_response": json.dumps(
                {"content": {"parts": [{"function_call": {"id": "c1", "name": "roll", "args": ARGS}}]}}
            ),
        }
    },
    "OpenInference": {
        "attributes": {
            "openinference.span.kind": "LLM",
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "roll",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": TEXT,
        }
    },
    "OpenLLMetry": {
        "attributes": {
            "gen_ai.system": "openai",
            "gen_ai.request.model": "m",
            "gen_ai.completion.0.tool_calls.0.id": "c1",
            "gen_ai.completion.0.tool_calls.0.name": "roll",
            "gen_ai.completion.0.tool_calls.0.arguments": TEXT,
        }
    },
}


def span(number: int, start: int = 0, parent: int = 0, **values: Any) -> TraceSpan:
    second = 1_000_000_000
    made = {"name": f"span {number}", "id": str(number), "parent": str(parent), **values}
    return TraceSpan.read({"start": start * second, "end": (start + 1) * second, **made})


def turn() -> Invocation:
    return Invocation(invocation_id="1", user_content=Content(role="user", parts=(Part(text="Roll."),)))


@pytest.mark.parametrize("convention", TOOLS)
def test_a_tool_that_ran(convention: str) -> None:
    ((call, agent),) = Trajectory([span(1, attributes=TOOLS[convention])]).calls
    assert call == TracedCall("roll", ARGS, "c1", {"rolled": 4})
    assert agent == "agent"


@pytest.mark.parametrize("convention", MODELS)
def test_what_a_model_asked_for_counts_where_no_tool_has_a_span(convention: str) -> None:
    ((call, _),) = Trajectory([span(1, **MODELS[convention])]).calls
    assert call == TracedCall("roll", ARGS, "c1")
    both = [span(1, **MODELS[convention]), span(2, 2, attributes=TOOLS["OpenTelemetry"])]
    assert [call.result for call, _ in Trajectory(both).calls] == [{"rolled": 4}], "and once where it has"


def test_calls_have_the_order_in_which_the_model_asked_for_them() -> None:
    asked = [{"type": "tool_call", "id": name, "name": "roll", "arguments": {"of": name}} for name in "abc"]
    model = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": [{"parts": asked}]}
    ran = [
        span(
            at,
            3,
            attributes={**TOOLS["OpenTelemetry"], "gen_ai.tool.call.id": name, "gen_ai.tool.call.arguments": None},
        )
        for at, name in ((2, "c"), (3, "a"), (4, "b"))
    ]
    later = span(9, 7, attributes={"openinference.span.kind": "TOOL", "tool.name": "other", "input.value": "{}"})
    calls = Trajectory([later, *ran, span(1, 1, attributes=model)]).calls
    assert [(call.name, call.args) for call, _ in calls] == [
        *(("roll", {"of": name}) for name in "abc"),
        ("other", {}),
    ], "arguments that the tool's span lacks are the model's"


def test_sub_agents_wrappers_and_tokens() -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.completion_tokens": 3}
    spans = [
        span(1, attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "root"}),
        span(2, 1, 1, attributes={"openinference.span.kind": "AGENT", "agent.name": "helper"}),
        span(3, 2, 2, attributes={**model, "gen_ai.response.model": "m-1"}),
        span(4, 2, 3, attributes=model),  # the client's span inside the framework's
        span(5, 3, 2, attributes=TOOLS["OpenTelemetry"]),
        span(6, 3, 5, attributes={"mcp.method.name": "tools/call", "gen_ai.tool.name": "roll"}),
    ]
    made = Trajectory(spans).added_to(turn())
    assert [(call.name, call.args) for call in made.tool_calls()] == [("roll", ARGS)]
    events = made.intermediate_data.invocation_events
    assert {event.author for event in events} == {"helper"}
    assert [event.usage_metadata["total_token_count"] for event in events if event.usage_metadata] == [13]
    assert [event.model_version for event in events if event.usage_metadata] == ["m-1"]
    assert [(part.kind, part.seconds) for part in made.spans] == [("model", 1.0), ("tool", 1.0)]
    assert (made.model_duration, made.tool_duration) == (1.0, 1.0)


def test_what_was_not_captured_is_said() -> None:
    blind = {name: value for name, value in TOOLS["OpenTelemetry"].items() if "arguments" not in name}
    assert "CAPTURE" in Trajectory([span(1, attributes=blind)]).added_to(turn()).uncaptured
    assert not Trajectory([span(1, attributes=TOOLS["ADK"])]).added_to(turn()).uncaptured


def instructions_of(run: Callable[[], object]) -> int:
    """How many instructions the interpreter executes for it, those in C left out."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(outer)
    return count


@pytest.mark.parametrize("nested", [False, True])
def test_spans_cost_no_more_than_their_number(nested: bool) -> None:
    def spans(number: int) -> list[TraceSpan]:
        asked = [{"type": "tool_call", "id": f"c{at}", "name": "roll", "arguments": {}} for at in range(number)]
        model = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": [{"parts": asked}]}
        tools = [
            {**TOOLS["OpenTelemetry"], "gen_ai.tool.call.id": f"c{number - at}", "gen_ai.tool.name": f"t{at * nested}"}
            for at in range(number)
        ]
        made = [span(at + 1, 2, at * nested, attributes=tool) for at, tool in enumerate(tools)]
        return [*made, span(number + 1, 0, attributes=model)]

    few, many = (instructions_of(lambda each=each: Trajectory(each)) for each in (spans(300), spans(600)))
    assert many < 2.6 * few


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([TEXT, "[" * 2000, "{'a': 1}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    sorted({name for known in (*TOOLS.values(), *(m["attributes"] for m in MODELS.values())) for name in known})
)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.dictionaries(NAMES, ANYTHING, max_size=5)), max_size=5)
)
def test_any_spans_make_a_turn(made: list[tuple[int, int, dict[str, Any]]]) -> None:
    spans = [
        {"name": "x", "id": str(own), "parent": str(parent), "start": own, "end": own + 1, "attributes": attributes}
        for own, parent, attributes in made
    ]
    found = with_trace(turn(), spans)
    assert Invocation.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "events",
    [
        [
            ["gen_ai.user.message", {"content": "roll again"}],
            ["gen_ai.assistant.message", {"tool_calls": json.dumps([{"type": "function", "function": CALL}])}],
            ["gen_ai.tool.message", {"id": "c1", "content": "4"}],
            ["gen_ai.choice", {"message": json.dumps({"role": "assistant", "content": "You rolled a 4."})}],
        ],
        [
            [
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.input.messages": json.dumps(
                        [{"role": "assistant", "parts": [{"type": "tool_call", **CALL}]}]
                    ),
                    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text"}]}]),
                },
            ]
        ],
    ],
    ids=["former events", "details"],
)
def test_calls_of_the_conversation_that_a_model_is_sent_are_not_made_again(events: list[Any]) -> None:
    span = {"name": "chat m", "id": "1", "start": 1, "end": 2, "attributes": {"gen_ai.operation.name": "chat"}}
    assert Trajectory([TraceSpan.read({**span, "events": events})]).calls == []


def langsmith(name: str, start: int, end: int, **attributes: Any) -> dict[str, Any]:
    named = {key.replace("__", "."): json.dumps(value) for key, value in attributes.items() if key.startswith("gen_ai")}
    kind = {"langsmith.span.kind": attributes["kind"], "gen_ai.operation.name": attributes["operation"]}
    return {"name": name, "id": f"{name}-{start}", "start": start, "end": end, "attributes": kind | named}


def test_a_call_whose_span_langsmith_lost_is_known_by_the_answer_that_other_spans_hold() -> None:
    """A tool that a model only pretends to call, as for an answer in a given form, has no answer and did not run."""
    calls = [{"id": f"c{n}", "name": "roll", "args": {"sides": n}, "type": "tool_call"} for n in (6, 20)]
    form = {"id": "c3", "name": "Answer", "args": {"rolled": 1}, "type": "tool_call"}
    answers = [{"type": "tool", "name": "roll", "tool_call_id": call["id"], "content": "4"} for call in calls]
    model = {"kind": "llm", "operation": "chat"}
    asked = {"generations": [[{"message": {"kwargs": {"tool_calls": [*calls, form]}}}]]}
    spans = [
        langsmith("ChatOpenAI", 1, 2, gen_ai__completion=asked, **model),
        langsmith("roll", 5, 6, kind="tool", operation="execute_tool", gen_ai__prompt={"sides": 20}),
        langsmith("tools", 3, 7, kind="chain", operation="chain", gen_ai__completion={"messages": answers}),
        langsmith("ChatOpenAI", 8, 9, gen_ai__prompt={"messages": answers}, gen_ai__completion={}, **model),
    ]
    found = with_trace(Invocation(user_content=Content(role="user", parts=(Part(text="roll"),))), spans)
    assert [(call.name, call.args) for call in found.tool_calls()] == [("roll", {"sides": 6}), ("roll", {"sides": 20})]
