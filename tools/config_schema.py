"""JSON Schemas for editors: agent-eval.yaml from the option table, test_config.json from the criteria."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from agent_eval_action.config.criteria import CustomMetric, UserSimulatorConfig
from agent_eval_action.config.loader import FILE_OPTIONS, SECTIONS
from agent_eval_action.config.options import AGENT_ENTRY, BY_NAME, Option
from agent_eval_action.config.types import Text, or_list
from agent_eval_action.criteria import CRITERIA

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_CRITERIA: Final = {"$ref": "#/$defs/criteria"}
_ANY_OPTIONS: Final = {"type": ["number", "object", "null"]}
"""A criterion from the user's `custom_metrics` or from another package."""


def agent_eval_schema() -> dict[str, Any]:
    """Return the schema. The reader accepts what it accepts, apart from checks that need files and folders."""
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for path, option in FILE_OPTIONS.items():
        *section, key = path.split(".")
        target = properties
        for name in section:
            target = target.setdefault(name, _section())["properties"]
        target[key] = _property(option, definitions)
    for name in SECTIONS:
        if short := properties[name]["properties"].get("path"):
            properties[name] = {"anyOf": [short, properties[name]]}
    agents = or_list({"anyOf": [_schema(Text, {}), {"$ref": "#/$defs/agent"}]})
    sentence = "An agent's folder, or a mapping with its path and what is its own; or a list of agents."
    properties |= {"agent": {**agents, "description": sentence}, "agents": {**agents, "description": sentence}}
    agent = _agent(definitions)
    rules = definitions["CriterionPolicy"]
    rules["minProperties"] = 1
    for rule in rules["properties"].values():
        del rule["default"]  # omitted values are inherited
    return {
        "$schema": DIALECT,
        "title": "agent-eval.yaml",
        "description": "Configuration of agent-eval. Paths start from the folder this file is in.",
        "type": "object",
        "additionalProperties": False,
        "properties": dict(sorted(properties.items(), key=lambda item: _rank(item[0]))),
        "not": {"required": ["agent", "agents"]},
        "$defs": {"agent": agent, **definitions, **_criteria_definitions(UserSimulatorConfig)},
    }


def criteria_file_schema() -> dict[str, Any]:
    """Return the schema of test_config.json: google-adk's fields and ours."""
    definitions = _criteria_definitions(CustomMetric, UserSimulatorConfig)
    properties = {
        "$schema": {"type": "string"},
        "criteria": _CRITERIA,
        "custom_metrics": {"type": "object", "additionalProperties": {"$ref": "#/$defs/CustomMetric"}},
        "user_simulator_config": {"$ref": "#/$defs/UserSimulatorConfig"},
    }
    body = {"type": "object", "additionalProperties": False, "properties": properties}
    return {"$schema": DIALECT, "title": "test_config.json", **_with_other_spellings(body), "$defs": definitions}


def _criteria_definitions(*others: type[Any]) -> dict[str, Any]:
    """Return the definition of `criteria`: every built-in criterion with its options."""
    criteria = {name: CRITERIA[name] for name in CRITERIA.builtin}
    models = [*criteria.values(), *others]
    _, made = models_json_schema([(model, "validation") for model in models], by_alias=False)
    definitions = {name: _with_other_spellings(schema) for name, schema in made["$defs"].items()}
    known = {
        name: {"anyOf": [{"type": ["number", "null"]}, {"$ref": f"#/$defs/{kind.__name__}"}]}
        for name, kind in criteria.items()
    }
    return {
        **definitions,
        "criteria": {
            "type": "object",
            "minProperties": 1,
            "description": "Criteria by name: a threshold, or a mapping of options.",
            "properties": known,
            "additionalProperties": dict(_ANY_OPTIONS),
        },
    }


def _with_other_spellings(schema: Any) -> Any:
    """Allow camelCase keys, comments and nulls, without making editors propose them."""
    if isinstance(schema, list):
        return [_with_other_spellings(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _with_other_spellings(value) for key, value in schema.items()}
    names = made.get("properties")
    if made.get("type") == "object" and isinstance(names, dict):
        spellings = {to_camel(name): value for name, value in names.items() if to_camel(name) != name}
        made["patternProperties"] = {
            "^_": {},
            **{f"^{name}$": {"anyOf": [value, {"type": "null"}]} for name, value in spellings.items()},
        }
        made["properties"] = {name: {"anyOf": [value, {"type": "null"}]} for name, value in names.items()}
        if required := made.pop("required", None):
            made["allOf"] = [{"anyOf": [{"required": [name]}, {"required": [to_camel(name)]}]} for name in required]
    return made


def _section() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; the types it refers to are added to ``definitions``."""
    schema = TypeAdapter(kind).json_schema(mode="validation", by_alias=False)
    definitions |= schema.pop("$defs", {})
    return schema


def _property(option: Option, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = {**_schema(option.annotation, definitions), "description": option.help}
    if option.name == "criteria":
        schema["anyOf"] = [schema["anyOf"][0], _CRITERIA]
    default = option.default.as_posix() if isinstance(option.default, Path) else option.default
    return schema | ({"default": default} if default not in (None, {}, ()) else {})


def _agent(definitions: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "One agent.",
        "additionalProperties": False,
        "properties": {key: _property(option, definitions) for key, option in AGENT_ENTRY.items()},
        "anyOf": [{"required": [name]} for name in ("path", "driver", "recording")],
    }


def _rank(key: str) -> int:
    """Sort agents first, then by the order of the option table."""
    order = ["agent", "agents", *(option.name for option in BY_NAME.values())]
    return order.index(key) if key in order else len(order)
