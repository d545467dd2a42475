"""Base classes of serialised values. Their schemas are built at first use, since not every run needs them.

Therefore defaults that are models are made by ``model_construct``: validation would build their schemas at import.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Frozen(BaseModel):
    """An immutable value in our own format: snake_case, no unknown fields, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    # pydantic keeps a set of the given field names in each value: 216 bytes, from five names on 728, a third of the
    # memory of a large suite. This setter drops it. It is a C function: one in Python slows reading by a quarter.
    __pydantic_fields_set__ = property(
        lambda self: set(type(self).model_fields),
        operator.is_,  # type: ignore[arg-type]  # its result is not used
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy like pydantic, but in a third of the time if there are no unknown and no private fields."""
        if deep or self.model_config.get("extra") == "allow" or self.__pydantic_private__ is not None:
            return super().model_copy(update=update, deep=deep)
        copied = self.__class__.__new__(self.__class__)
        object.__setattr__(copied, "__dict__", {**self.__dict__, **(update or {})})
        object.__setattr__(copied, "__pydantic_extra__", None)
        object.__setattr__(copied, "__pydantic_private__", None)
        return copied


class TracksFields(Frozen):
    """A value with pydantic's ``model_fields_set``, which ``Frozen`` drops."""

    __pydantic_fields_set__ = vars(BaseModel)["__pydantic_fields_set__"]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return BaseModel.model_copy(self, update=update, deep=deep)


class AdkModel(Frozen):
    """A value in ADK's format, which is read in snake_case and camelCase, and written in snake_case."""

    model_config = ConfigDict(
        allow_inf_nan=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=False,
    )

    def wire(self) -> dict[str, Any]:
        """Return the value as JSON, without the fields that are None."""
        return self.model_dump(mode="json", exclude_none=True)


class LenientModel(AdkModel):
    """A value that another tool writes. Unknown fields are ignored, since later versions may add some."""

    model_config = ConfigDict(extra="ignore")


class CaseKey(NamedTuple):
    """The name of a case. All outputs are sorted by it."""

    agent: str
    eval_set: str
    case: str

    def __str__(self) -> str:
        return " / ".join(self)


class OfCase(Frozen):
    """Base class of values that belong to a case."""

    agent: str
    eval_set: str
    case: str

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.agent, self.eval_set, self.case)


def text_digest(text: str) -> str:
    """Return a digest of a text: 16 hex digits (64 bits), enough to tell two definitions apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def json_digest(value: Any) -> str:
    """Return the same digest of a value as JSON, whatever the order of its keys."""
    return text_digest(json.dumps(value, sort_keys=True, default=str))


StoreKind = Literal["file", "branch", "rerun"]
"""The names in ``baseline.STORES``; a contract test compares them."""
