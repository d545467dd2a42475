"""One sentence for people out of what judges said."""

from __future__ import annotations

from agent_eval_action.criteria.judge import Ballot

_EXCERPT = 200


def excerpt(text: str) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(text[: 2 * _EXCERPT].split())
    return flat if len(flat) <= _EXCERPT and len(text) <= 2 * _EXCERPT else flat[: _EXCERPT - 1] + "…"


def undecided(ballot: Ballot) -> str:
    """Why there is no verdict."""
    votes = ballot.votes
    cast = votes.yes + votes.no
    so_far = f" after {votes.yes} yes and {votes.no} no" if cast else ""
    return f"no verdict{so_far}: {excerpt(ballot.reason)}"
