"""The receiver, with OpenTelemetry's own SDK and exporter in a process, and over plain HTTP."""

import asyncio
import gzip
import io
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from agent_eval_action.results.evalset import Content, Invocation
from agent_eval_action.telemetry.otlp import MAX_BODY
from agent_eval_action.telemetry.receiver import TraceReceiver, TurnTrace
from agent_eval_action.telemetry.trajectory import Trajectory

PROGRAM = """
import os, sys
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
args = '{"sides": 6, "label": "gr\\u00f6\\u00dfer"}'
tracer = provider.get_tracer("agent")
context = propagate.extract({"traceparent": sys.argv[1]}) if len(sys.argv) > 1 else None
with tracer.start_as_current_span("invoke_agent", context=context) as agent:
    agent.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"})
    with tracer.start_as_current_span("chat m") as chat:
        chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 7, "x": [1.5, True]})
    with tracer.start_as_current_span("execute_tool roll") as tool:
        tool.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "roll",
            "gen_ai.tool.call.arguments": args, "gen_ai.tool.call.result": "3"})
provider.shutdown()
"""
EXPECTED = [("roll", {"sides": 6, "label": "größer"})]


@pytest.fixture
async def receiver() -> AsyncIterator[TraceReceiver]:
    receiver = TraceReceiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


async def report(receiver: TraceReceiver, body: bytes | io.BytesIO, **headers: str) -> int:
    named = {"Content-Type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{receiver.endpoint()}/v1/traces", data=body, headers=named) as answer,
    ):
        return answer.status


def spans(trace: str, tool: str, parent: str = "", number: int = 0, **attributes: str) -> bytes:
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    named |= {key.replace("__", "."): value for key, value in attributes.items()}
    item = {
        "traceId": trace,
        "spanId": f"{number:x}" * 16 if number else trace[:16],
        "parentSpanId": parent,
        "startTimeUnixNano": str(time.time_ns()),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in named.items()],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [item]}]}]}).encode()


async def tools_of(receiver: TraceReceiver, turn: TurnTrace) -> list[str]:
    return [str(span.attributes["gen_ai.tool.name"]) for span in (await receiver.finish(turn, 2)).spans]


@pytest.mark.adk110
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("is_told", [True, False], ids=["traceparent", "own-root"])
async def test_spans_of_the_sdk(receiver: TraceReceiver, adk110_python: Path, compression: str, is_told: bool) -> None:
    turn = receiver.begin_turn()
    environment = {**os.environ, **receiver.environment(), "OTEL_EXPORTER_OTLP_COMPRESSION": compression}
    words = [turn.traceparent] if is_told else []
    process = await asyncio.create_subprocess_exec(adk110_python, "-c", PROGRAM, *words, env=environment)
    assert await process.wait() == 0
    asked = Invocation(user_content=Content(role="user", parts=()))
    answered = Trajectory((await receiver.finish(turn, 10)).whole_spans()).added_to(asked)
    assert [(call.name, call.args) for call in answered.tool_calls()] == EXPECTED


async def test_turns_at_the_same_time_get_their_own_spans(receiver: TraceReceiver) -> None:
    first, second = receiver.begin_turn(), receiver.begin_turn()
    await report(receiver, spans(second.trace_id, "b"))
    await report(receiver, gzip.compress(spans(first.trace_id, "a")), Content_Encoding="gzip")
    await report(receiver, spans("ee" * 16, "of nobody knows whom"))
    assert await asyncio.gather(tools_of(receiver, first), tools_of(receiver, second)) == [["a"], ["b"]]


async def test_a_span_of_long_before_the_answer_does_not_end_the_wait(receiver: TraceReceiver) -> None:
    turn = receiver.begin_turn()
    await report(receiver, spans(turn.trace_id, "first", parent="2" * 16, number=1))
    await asyncio.sleep(1.2)  # the model takes its time
    found = asyncio.create_task(receiver.finish(turn, 30))
    await asyncio.sleep(1.2)  # and so does the export
    await report(receiver, spans(turn.trace_id, "last", parent=turn.span_id, number=2))
    assert [span.span_id[0] for span in (await found).spans] == ["1", "2"]


async def test_parents_that_never_come_are_waited_for_once(receiver: TraceReceiver) -> None:
    for timeout in (1.5, 30):
        turn = receiver.begin_turn()
        await report(receiver, spans(turn.trace_id, "a", parent="2" * 16, number=1))
        begin = time.monotonic()
        assert len((await receiver.finish(turn, timeout)).spans) == 1
        assert time.monotonic() - begin < 20


async def test_own_traces_are_told_apart_by_their_conversation(receiver: TraceReceiver) -> None:
    first, second = receiver.begin_turn("one"), receiver.begin_turn("two")
    await report(receiver, spans("aa" * 16, "b", session__id="two"))
    await report(receiver, spans("bb" * 16, "a", gen_ai__conversation__id="one"))
    assert await asyncio.gather(tools_of(receiver, first), tools_of(receiver, second)) == [["a"], ["b"]]


async def test_what_cannot_be_told_apart_is_of_no_turn_and_that_is_known(receiver: TraceReceiver) -> None:
    first, second = receiver.begin_turn(), receiver.begin_turn()
    elsewhere = receiver.begin_turn(source="other")
    await report(receiver, spans("aa" * 16, "a"))
    await report(receiver, spans("bb" * 16, "b"))
    found = await asyncio.gather(
        receiver.finish(first, 0.1), receiver.finish(second, 0.1), receiver.finish(elsewhere, 0.1)
    )
    assert [(each.spans, each.is_ambiguous) for each in found] == [((), True), ((), True), ((), False)]


async def test_tool_calls_in_traces_of_nobody_are_missed_beside_spans_that_are_a_turns_own(
    receiver: TraceReceiver,
) -> None:
    first, second = receiver.begin_turn(), receiver.begin_turn()
    await report(receiver, spans(first.trace_id, "mine"))
    await report(receiver, spans("aa" * 16, "of one of the two"))
    assert [
        (len(each.spans), each.is_ambiguous)
        for each in (await receiver.finish(first, 0.1), await receiver.finish(second, 0.1))
    ] == [
        (1, True),
        (0, True),
    ]


async def test_traces_without_a_tool_or_model_make_nothing_ambiguous(receiver: TraceReceiver) -> None:
    first, second = receiver.begin_turn(), receiver.begin_turn()
    await report(receiver, spans("aa" * 16, "x", gen_ai__operation__name="create_agent"))
    assert [(await receiver.finish(each, 0.1)).is_ambiguous for each in (first, second)] == [False, False]


async def test_a_span_that_is_sent_twice_is_one_and_several_may_share_an_id(receiver: TraceReceiver) -> None:
    turn = receiver.begin_turn()
    once, other = spans(turn.trace_id, "a"), spans(turn.trace_id, "b")
    for body in (once, once, other):
        await report(receiver, body)
    found = (await receiver.finish(turn, 2)).whole_spans()
    assert [span.attributes["gen_ai.tool.name"] for span in found] == ["a", "b"]


async def test_spans_that_come_after_their_turn_was_ended_are_reported(receiver: TraceReceiver) -> None:
    late: list[float] = []
    receiver.on_late = late.append
    turn = receiver.begin_turn()
    await report(receiver, spans(turn.trace_id, "in time", number=1))
    await receiver.finish(turn, 0.1)
    await report(receiver, spans(turn.trace_id, "in time", number=1))
    await report(receiver, spans(turn.trace_id, "create", number=2, gen_ai__operation__name="create_agent"))
    assert late == []
    await report(receiver, spans(turn.trace_id, "late", number=3))
    assert len(late) == 1


async def test_a_turn_knows_of_payloads_that_were_not_read(receiver: TraceReceiver) -> None:
    turn, other = receiver.begin_turn(), receiver.begin_turn(source="other")
    assert await report(receiver, b"{") == 400
    assert [bool((await receiver.finish(each, 0.1)).refused) for each in (turn, other)] == [True, False]
    turn = receiver.begin_turn()
    assert await report(receiver, io.BytesIO(b" " * (MAX_BODY + 1))) == 413
    assert (await receiver.finish(turn, 0.1)).refused


async def test_more_spans_than_are_kept_are_counted(receiver: TraceReceiver) -> None:
    turn = receiver.begin_turn()
    one = json.loads(spans(turn.trace_id, "a"))
    one["resourceSpans"][0]["scopeSpans"][0]["spans"] *= 20_003
    await report(receiver, gzip.compress(json.dumps(one).encode(), 1), Content_Encoding="gzip")
    found = await receiver.finish(turn, 5)
    assert (len(found.spans), found.dropped) == (20_000, 3)


async def test_a_turn_does_not_get_what_came_before_it(receiver: TraceReceiver) -> None:
    await report(receiver, spans("aa" * 16, "early"))
    turn = receiver.begin_turn()
    await report(receiver, spans("bb" * 16, "mine"))
    assert await tools_of(receiver, turn) == ["mine"]


async def test_an_agent_that_reports_nothing_is_waited_for_once(receiver: TraceReceiver) -> None:
    assert (await receiver.finish(receiver.begin_turn(), 1)).spans == ()
    begin = time.monotonic()
    await receiver.finish(receiver.begin_turn(), 30)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\x0b", {"Content_Type": "application/x-protobuf"}, 400),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 415),
        (b"{}", {}, 200),
    ],
)
async def test_hostile_requests_are_answered(
    receiver: TraceReceiver, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert await report(receiver, body, **headers) == status


async def test_the_path_is_a_secret(receiver: TraceReceiver) -> None:
    base = receiver.endpoint().rpartition("/")[0]
    async with aiohttp.ClientSession() as client, client.post(f"{base}/v1/traces", json={}) as answer:
        assert answer.status == 404
