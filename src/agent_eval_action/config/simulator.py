"""The option ``user_simulator``: ADK's user_simulator_config, written in agent-eval.yaml or in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent_eval_action.config.criteria import UserSimulatorConfig, refusals, set_values
from agent_eval_action.config.types import TEXT, Flaw, Kind, Refused, Where
from agent_eval_action.diagnostics.reader import Source, did_you_mean
from agent_eval_action.errors import ConfigError


def _simulator(value: Any, where: Where) -> UserSimulatorConfig:
    """A mapping, or a JSON or YAML file that holds one (a test_config.json gives its user_simulator_config)."""
    if isinstance(value, Mapping):
        return _validated(value)
    if not isinstance(value, str):
        raise Refused(Flaw("must be a file or a mapping like user_simulator_config", value))
    path = where.base / str(TEXT.read(value, where))
    if not path.is_file():
        siblings = [one.name for one in path.parent.glob("*.json")] if path.parent.is_dir() else []
        raise Refused(Flaw("names a file that does not exist", value, hint=did_you_mean(path.name, siblings)))
    return _validated(_mapping(path))


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        held = Source.read(path, workspace=None, error=ConfigError).value
    except ConfigError as error:
        raise Refused(Flaw("; ".join(str(one) for one in error.problems) or error.message)) from error
    if isinstance(held, Mapping):
        held = held.get("user_simulator_config", held.get("userSimulatorConfig", held))
    if not isinstance(held, Mapping):
        raise Refused(Flaw(f"{path.name} holds no mapping like user_simulator_config"))
    return held


def _validated(value: Mapping[str, Any]) -> UserSimulatorConfig:
    try:
        return UserSimulatorConfig.model_validate(set_values(value))
    except ValidationError as error:
        flaws = [
            Flaw(message, at=place, hint=fields.get("hint"))
            for place, message, fields in refusals(error, UserSimulatorConfig)
        ]
        raise Refused(*flaws) from error


SIMULATOR: Final = Kind(
    "file or mapping",
    {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "type": {"enum": ["llm_backed"]},
                    "model": {"type": "string", "minLength": 1},
                    "model_configuration": {"type": "object"},
                    "max_allowed_invocations": {"type": "integer"},
                    "custom_instructions": {"type": "string"},
                    "include_function_calls": {"type": "boolean"},
                },
            },
        ]
    },
    _simulator,
)
