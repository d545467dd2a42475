"""Comparison and decision: pure functions over counts and scores."""

from __future__ import annotations

from agent_eval_action.gate.pairs import Comparison, compare
from agent_eval_action.gate.verdict import decide

__all__ = ["Comparison", "compare", "decide"]
