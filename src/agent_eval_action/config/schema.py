"""JSON Schema of agent-eval.yaml, derived from the option table; editors read it, a test ties the file to it."""

from __future__ import annotations

from typing import Any, Final

from agent_eval_action.config.file import AGENT_KEYS, FILE_OPTIONS, SECTIONS
from agent_eval_action.config.option import Option
from agent_eval_action.config.options import AGENT_OPTIONS, BY_NAME
from agent_eval_action.config.values import TEXT, or_list

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def agent_eval_schema() -> dict[str, Any]:
    """The schema: what it accepts, the reader accepts, but for what only files and folders can tell."""
    properties: dict[str, Any] = {}
    for option in FILE_OPTIONS:
        *section, key = str(option.key).split(".")
        target = properties
        for name in section:
            target = target.setdefault(name, _section())["properties"]
        target[key] = _property(option)
    for name in SECTIONS:
        if short := properties[name]["properties"].get("path"):
            properties[name] = {"anyOf": [short, properties[name]]}
    agents = or_list({"anyOf": [dict(TEXT.schema), {"$ref": "#/$defs/agent"}]})
    sentence = "An agent's folder, or a mapping with its path and what is its own; or a list of agents."
    properties |= {"agent": {**agents, "description": sentence}, "agents": {**agents, "description": sentence}}
    return {
        "$schema": DIALECT,
        "title": "agent-eval.yaml",
        "description": "Configuration of agent-eval. Paths start from the folder this file is in.",
        "type": "object",
        "additionalProperties": False,
        "properties": dict(sorted(properties.items(), key=lambda item: _rank(item[0]))),
        "not": {"required": ["agent", "agents"]},
        "$defs": {"agent": _agent()},
    }


def _section() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _property(option: Option) -> dict[str, Any]:
    schema = {**option.kind.schema, "description": option.help}
    return schema | ({"default": option.default} if option.default not in (None, {}, ()) else {})


def _agent() -> dict[str, Any]:
    words = {
        "path": "The agent's folder.",
        "name": "The agent's name in every result; by default its folder's.",
    }
    properties = {name: {**TEXT.schema, "description": sentence} for name, sentence in words.items()}
    properties |= {option.name: _property(option) for option in AGENT_OPTIONS}
    return {
        "type": "object",
        "description": "One agent.",
        "additionalProperties": False,
        "properties": {key: properties[key] for key in AGENT_KEYS},
        "anyOf": [{"required": ["path"]}, {"required": ["recording"]}],
    }


def _rank(key: str) -> int:
    """Agents first, then the order of the option table."""
    order = ["agent", "agents", *(option.name for option in BY_NAME.values())]
    return order.index(key) if key in order else len(order)
