"""The two base classes of serialised values. Their schemas are built when they are first used: not every run does.

Defaults that are models themselves are constructed, not validated, for that would use them at import.
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
    """A value of ours: snake_case, no unknown fields, immutable, no NaN and no infinity in its numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    # pydantic gives each value a set of the names it was given, of 216 bytes and from five names on 728: a third of the
    # memory of a large suite. It is thrown away here, by a function in C: one in Python takes a quarter of the reading.
    __pydantic_fields_set__ = property(
        lambda self: set(type(self).model_fields),
        operator.is_,  # type: ignore[arg-type]  # what it returns is looked at by nobody
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, in a third of the time where there are no unknown and no private fields."""
        if deep or self.model_config.get("extra") == "allow" or self.__pydantic_private__ is not None:
            return super().model_copy(update=update, deep=deep)
        copied = self.__class__.__new__(self.__class__)
        object.__setattr__(copied, "__dict__", {**self.__dict__, **(update or {})})
        object.__setattr__(copied, "__pydantic_extra__", None)
        object.__setattr__(copied, "__pydantic_private__", None)
        return copied


class Given(Frozen):
    """A value that knows which of its fields were given."""

    __pydantic_fields_set__ = vars(BaseModel)["__pydantic_fields_set__"]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return BaseModel.model_copy(self, update=update, deep=deep)


class AdkModel(Frozen):
    """A value in ADK's wire form: snake_case and camelCase are read, snake_case is written."""

    model_config = ConfigDict(
        allow_inf_nan=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=False,
    )

    def wire(self) -> dict[str, Any]:
        """The value as JSON, without what is absent."""
        return self.model_dump(mode="json", exclude_none=True)


class LenientModel(AdkModel):
    """What another tool wrote and may add to: unknown fields are left out."""

    model_config = ConfigDict(extra="ignore")


class CaseKey(NamedTuple):
    """Names a case in every output. Sorting by it is the stable order of every output."""

    agent: str
    eval_set: str
    case: str

    def __str__(self) -> str:
        return " / ".join(self)


class OfCase(Frozen):
    """Base of what is kept of a case."""

    agent: str
    eval_set: str
    case: str

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.agent, self.eval_set, self.case)


def text_digest(text: str) -> str:
    """16 hex digits (64 bits) of a text: enough to tell two definitions apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def json_digest(value: Any) -> str:
    """The same of a value as JSON. The order of keys does not count."""
    return text_digest(json.dumps(value, sort_keys=True, default=str))


StoreKind = Literal["file", "branch", "rerun"]
"""The names of ``baseline.STORES``, which a contract test compares with these."""
