"""Agents put anything into tool results and state: this makes JSON of it without ever failing."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

MAX_DEPTH = 100
MAX_NODES = 2_000_000
MAX_BITS = 8192  # Python refuses to read or write decimal numbers of more than 4300 digits


class TooLargeError(Exception):
    """A value with more nodes than anybody will read; shared references can make it endless."""


def encode(value: Any) -> bytes:
    """UTF-8 JSON of any value: what JSON cannot say is said as text."""
    try:
        # A lone surrogate is legal in a Python str and refused by every UTF-8 reader: encoding finds it.
        return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        return json.dumps(_Cleaner().clean(value, 0), ensure_ascii=False).encode("utf-8")


def encode_model(model: Any) -> bytes:
    """JSON of a pydantic model (None fields left out); the slow path takes what pydantic refuses."""
    try:
        fields = model.model_dump(mode="json", exclude_none=True)
    except Exception:  # noqa: BLE001 - the kinds vary by version of pydantic
        fields = _Cleaner().clean(_fields(model), 0)
    return encode(fields)


def _fields(model: Any) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = model.model_dump(mode="python", exclude_none=True)
    except Exception:  # noqa: BLE001 - a cyclic value fails in both modes
        fields = {key: value for key, value in vars(model).items() if value is not None}
    return fields


class _Cleaner:
    """Copies a value into plain JSON types, cutting cycles and depth."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._nodes = 0

    def clean(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise TooLargeError(f"more than {MAX_NODES} values in one object")
        if value is None or isinstance(value, (bool, int, float, str)):
            return _clean_plain(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return base64.urlsafe_b64encode(bytes(value)).decode("ascii")
        if depth >= MAX_DEPTH:
            return f"<deeper than {MAX_DEPTH} levels>"
        return self._clean_container(value, depth)

    def _clean_container(self, value: Any, depth: int) -> Any:
        if id(value) in self._open:
            return "<refers to itself>"
        self._open.add(id(value))
        try:
            if isinstance(value, dict):
                return {_key(key): self.clean(item, depth + 1) for key, item in list(value.items())}
            if isinstance(value, (list, tuple, set, frozenset)):
                return [self.clean(item, depth + 1) for item in list(value)]
            if callable(getattr(value, "model_dump", None)):
                return self.clean(_fields(value), depth + 1)
            return _repr(value)
        finally:
            self._open.discard(id(value))


def _clean_plain(value: Any) -> Any:
    if isinstance(value, str):
        return whole_text(str(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value.bit_length() < MAX_BITS else hex(value)
    return value


def _key(key: Any) -> str:
    return whole_text(key if isinstance(key, str) else _repr(key))


def _repr(value: Any) -> str:
    try:
        return whole_text(str(value))
    except BaseException as error:  # noqa: BLE001 - a hostile __str__ must not end the turn
        return f"<{type(value).__name__} whose text raises {type(error).__name__}>"


def whole_text(text: str) -> str:
    """Join surrogate pairs, replace lone ones by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
