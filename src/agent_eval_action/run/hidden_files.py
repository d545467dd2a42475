"""What of the checkout an agent's copy of it lacks: the files that say what the agent is to answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agent_eval_action.config.discovery import CRITERIA_FILE, Discovery
from agent_eval_action.config.settings import Settings
from agent_eval_action.folders import real_path


def files_with_answers(settings: Settings, found: Discovery, base_eval_files: Iterable[str] = ()) -> frozenset[Path]:
    """Files and folders, relative to the workspace, that no agent gets to see.

    Only what this run uses: eval files, the criteria files beside them, recordings, the configuration, the stored
    baseline, and results to resume. ``base_eval_files``: those of the base commit, which may be called differently.
    """
    if settings.policy.agents_see_evals:
        return frozenset()
    workspace = real_path(settings.workspace)
    of_base = [settings.workspace / name for name in base_eval_files]
    named = [*_named(settings, found), *of_base, *(path.parent / CRITERIA_FILE for path in of_base)]
    # what an agent could open by either of its names, where a file is reached by a link
    places = {place for path in named for place in (settings.workspace / path, real_path(path))}
    roots = (settings.workspace, workspace)
    inside = {place.relative_to(root) for root in roots for place in places if place.is_relative_to(root)}
    return frozenset(inside - {Path()})


def _named(settings: Settings, found: Discovery) -> Iterator[Path]:
    agents = [*settings.agents, *(one.agent for one in found.sets)]
    for one in found.sets:
        yield from (path for path in (one.path, one.criteria_file) if path is not None)
    for agent in agents:
        yield from (path for path in (agent.recording, agent.criteria) if isinstance(path, Path))
    yield from (path for path in (settings.config, settings.baseline, settings.resume) if path is not None)
