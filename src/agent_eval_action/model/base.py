"""The two base classes of serialised values."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Frozen(BaseModel):
    """A value of ours: snake_case, no unknown fields, immutable, no NaN and no infinity in its numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AdkModel(BaseModel):
    """A value in ADK's wire form: snake_case and camelCase are read, snake_case is written."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=False,
    )


StoreKind = Literal["file", "branch", "rerun"]
"""A committed file, a branch of records, or nothing: the base commit's agent runs beside the change's."""
