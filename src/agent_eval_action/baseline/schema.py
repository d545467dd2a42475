"""The JSON Schema of baseline.json, as ``schema/baseline.schema.json`` publishes it."""

from __future__ import annotations

import json
from typing import Any

from agent_eval_action.model.baseline import Baseline


def schema() -> dict[str, Any]:
    """The schema as a value."""
    body = Baseline.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "title": "baseline.json of agent-eval"}


def schema_text() -> str:
    """The schema as the published file has it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
