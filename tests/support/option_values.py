"""Reads values as the loader reads those of options: by a type, at an origin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from agent_eval_action.config.types import Origin, ValueType
from agent_eval_action.diagnostics.validation import Issue, issues_of


def origin(base: Path = Path("/base"), *, text: bool = False, search_path: str | None = None) -> Origin:
    return Origin(base, Path("x"), 1, text=text, search_path=search_path)


def read(kind: Any, value: Any, where: Origin) -> Any:
    return TypeAdapter(_annotation(kind)).validate_python(value, context=where)


def issues(kind: Any, value: Any, where: Origin) -> list[Issue]:
    with pytest.raises(ValidationError) as caught:
        read(kind, value, where)
    return list(issues_of(caught.value, value, _annotation(kind)))


def _annotation(kind: Any) -> Any:
    return Annotated[Any, kind] if isinstance(kind, ValueType) else kind
