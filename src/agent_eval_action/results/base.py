"""The two base classes of serialised values. Their schemas are built when they are first used: not every run does.

Defaults that are models themselves are constructed, not validated, for that would use them at import.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

_FIELD_SETS: Final[dict[frozenset[str], set[str]]] = {}
_set_given: Final = vars(BaseModel)["__pydantic_fields_set__"].__set__  # one is set for each value that is made


class Frozen(BaseModel):
    """A value of ours: snake_case, no unknown fields, immutable, no NaN and no infinity in its numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def model_post_init(self, _: Any, /) -> None:
        """Share the set of the names of given fields with all instances that have the same one.

        pydantic gives each instance a set of its own, of 216 bytes and from five names on 728: of a large suite that
        is a third of the memory. Nothing changes these sets, for the models are frozen.
        """
        given = self.__pydantic_fields_set__
        _set_given(self, _FIELD_SETS.setdefault(frozenset(given), given))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, in a third of the time where there are no unknown and no private fields."""
        if deep or self.model_config.get("extra") == "allow" or self.__pydantic_private__ is not None:
            copied = super().model_copy(update=update, deep=deep)
            copied.model_post_init(None)
            return copied
        copied = self.__class__.__new__(self.__class__)
        given = self.__pydantic_fields_set__
        if update and not update.keys() <= given:
            given = given | update.keys()
            given = _FIELD_SETS.setdefault(frozenset(given), given)
        object.__setattr__(copied, "__dict__", {**self.__dict__, **(update or {})})
        object.__setattr__(copied, "__pydantic_extra__", None)
        object.__setattr__(copied, "__pydantic_private__", None)
        _set_given(copied, given)
        return copied


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
