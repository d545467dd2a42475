"""Prints google-genai's fields and their kinds for formats/genai_fields.json (indent 1), by any interpreter."""

from __future__ import annotations

import enum
import json
import typing

import pydantic
from google.genai import types

found: dict[str, dict[str, str]] = {}


def kind(annotation: typing.Any) -> str:
    args = [one for one in typing.get_args(annotation) if one is not type(None)]
    origin = typing.get_origin(annotation)
    if origin is typing.Union:
        return kind(args[0])
    if origin is list:
        return f"[{kind(args[0])}]"
    if origin is dict:
        return "object"
    if origin is typing.Literal:
        return f"'{args[0]}"
    if issubclass(annotation, pydantic.BaseModel):
        visit(annotation)
        return annotation.__name__
    return "enum" if issubclass(annotation, enum.Enum) else annotation.__name__


def visit(model: type[pydantic.BaseModel]) -> None:
    if model.__name__ not in found:
        found[model.__name__] = {}
        found[model.__name__] = {name: kind(field.annotation) for name, field in model.model_fields.items()}


for root in (types.Content, types.GroundingMetadata, types.GenerateContentResponseUsageMetadata):
    visit(root)
print(json.dumps(found))  # noqa: T201 - its output is its answer
