"""The text of the comment: one section per key, each between markers no other text can forge."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose section it is and of which run.

    ``key`` names the configuration and matrix leg. ``run`` and ``attempt`` are GITHUB_RUN_NUMBER and
    GITHUB_RUN_ATTEMPT, ``run_id`` is GITHUB_RUN_ID (0: not known). ``outcome`` is the verdict's word, ``state``
    what ``changes`` compares (``state_of``). ``title`` heads the section where there are several; "" is the key.
    """

    key: str
    sha: str = ""
    run: int = 0
    attempt: int = 1
    run_id: int = 0
    outcome: str = ""
    state: str = ""
    title: str = ""
