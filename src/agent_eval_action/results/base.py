"""The two base classes of serialised values. Their schemas are built when they are first used: not every run does.

Defaults that are models themselves are constructed, not validated, for that would use them at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

_FIELD_SETS: Final[dict[frozenset[str], set[str]]] = {}


class Frozen(BaseModel):
    """A value of ours: snake_case, no unknown fields, immutable, no NaN and no infinity in its numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def model_post_init(self, _: Any, /) -> None:
        """Share the set of the names of given fields with all instances that have the same one.

        pydantic gives each instance a set of its own, of 216 bytes and from five names on 728: of a large suite that
        is a third of the memory. Nothing changes these sets, for the models are frozen.
        """
        given = self.__pydantic_fields_set__
        object.__setattr__(self, "__pydantic_fields_set__", _FIELD_SETS.setdefault(frozenset(given), given))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with a shared set of field names again: pydantic's copy has one of its own."""
        copied = super().model_copy(update=update, deep=deep)
        copied.model_post_init(None)
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


StoreKind = Literal["file", "branch", "rerun"]
"""The names of ``baseline.STORES``, which a contract test compares with these."""
