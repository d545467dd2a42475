"""A function whose turn makes as many spans as it is told, of a tool each."""

from opentelemetry import trace


def answer(message):
    for _ in range(int(message)):
        with trace.get_tracer("agent").start_as_current_span("execute_tool roll") as span:
            span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "roll"})
    return "rolled"
