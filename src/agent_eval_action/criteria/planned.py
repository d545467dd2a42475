"""ADK's criteria that need a model: known by name, their options checked, not scored by this version."""

from __future__ import annotations

from typing import Final

from pydantic import ConfigDict, Field

from agent_eval_action.model.base import AdkModel


class PlannedOptions(AdkModel):
    """Options of every criterion of ADK."""

    threshold: float = Field(ge=0, le=1, allow_inf_nan=False)
    include_intermediate_responses_in_final: bool = False


class CustomOptions(PlannedOptions):
    """Options of a custom metric: whatever its function reads, on a scale of its own."""

    model_config = ConfigDict(extra="allow")

    threshold: float = Field(allow_inf_nan=False)


PLANNED: Final[dict[str, type[PlannedOptions]]] = {}
"""Names a config may carry although ``CRITERIA`` has no class for them yet; none is dropped in silence."""
