"""A server of chat completions whose answer is only text: `python serve.py AGENT EXPORT PORT`.

Its spans leave as the SDK of OpenTelemetry is told by its variables, in protobuf or JSON, or into a file.
"""

import importlib
import inspect
import os
import sys

import uvicorn
from opentelemetry import context, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route


def processor(export):
    if export == "file":
        from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter

        return SimpleSpanProcessor(FileSpanExporter(os.environ["SPANS_FILE"]))
    if export == "json":
        from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    return BatchSpanProcessor(OTLPSpanExporter())


def main(agent, export, port):
    provider = TracerProvider()
    provider.add_span_processor(processor(export))
    trace.set_tracer_provider(provider)
    reply = importlib.import_module(agent).reply

    async def answer(request):
        said = (await request.json())["messages"][-1]["content"]
        token = context.attach(propagate.extract(dict(request.headers)))
        try:
            text = await reply(said) if inspect.iscoroutinefunction(reply) else await run_in_threadpool(reply, said)
        finally:
            context.detach(token)
        return JSONResponse({"choices": [{"message": {"role": "assistant", "content": text}}]})

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    uvicorn.run(app, port=int(port), log_level="warning")
    provider.shutdown()


main(*sys.argv[1:])
