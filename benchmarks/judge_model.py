"""The model of the judged job: the shop's agent, and a judge that always agrees, for ADK's prompt or with a schema."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import workload
from support.gemini_server.messages import ModelRequest, Reply
from support.gemini_server.script import Script

AGENT = Script(workload.RULES["rules"])
ADK_LABEL = "is_the_agent_response_valid"


def answer(request: ModelRequest) -> Reply:
    """Return the model's reply; the judge always says "valid", so that all votes agree."""
    settings = request.body.get("generationConfig") or {}
    schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
    if schema:
        return Reply(text=json.dumps(agreeing(schema)))
    if ADK_LABEL in request.user_text:
        return Reply(text=json.dumps({"reasoning": "It says what the reference says.", ADK_LABEL: "valid"}, indent=1))
    return AGENT(request)


def agreeing(schema: dict[str, Any]) -> Any:
    """Return a value that fits a JSON Schema: the first choice of an enum, True for booleans."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type", "string")).lower()
    if kind == "object":
        return {name: agreeing(inner) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [agreeing(schema["items"])]
    return {"boolean": True, "integer": 0, "number": 0}.get(kind, "It says what the reference says.")
