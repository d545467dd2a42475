"""The built-in personas of simulated users, read from personas.yaml when one is first asked for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agent_eval_action.results.evalset import BUILT_IN_PERSONAS, Persona, PersonaBehavior


@cache
def _file() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return content


def personas_version() -> str:
    """The version of the built-in behaviours: scores judged by other behaviours do not compare."""
    return str(_file()["version"])


def default_behaviors() -> tuple[PersonaBehavior, ...]:
    """The behaviours of a simulated user without a persona."""
    return _behaviors(_file()["default_behaviors"])


def find_persona(ref: str | Persona) -> Persona:
    """Return a built-in persona by its id, or a custom one as it is.

    Raises ValueError for an unknown id; ``formats`` refuses eval files that name one.
    """
    if isinstance(ref, Persona):
        return ref
    if ref not in BUILT_IN_PERSONAS:
        near = difflib.get_close_matches(ref.upper(), BUILT_IN_PERSONAS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"the built-in ones are {', '.join(BUILT_IN_PERSONAS)}"
        raise ValueError(f"no persona has the id `{ref}`: {hint}")
    fields = _file()["personas"][ref]
    return Persona(id=ref, description=fields["description"], behaviors=_behaviors(fields["behaviors"]))


def _behaviors(names: list[str]) -> tuple[PersonaBehavior, ...]:
    return tuple(PersonaBehavior.model_validate(_file()["behaviors"][name]) for name in names)


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace every ``{{ name }}`` by its value in one pass, so that a value is never read as a placeholder.

    A placeholder without a value stays as it is.
    """
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: values.get(match[1], match[0]), text)
