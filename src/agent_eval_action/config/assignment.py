"""Which agent an eval file belongs to: the nearest one above or beside it, else the one its session_input names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_eval_action.config.agents import relative_name
from agent_eval_action.config.models import AgentSettings
from agent_eval_action.errors import EvalFileError, Problem

AppNames = Callable[[Path], frozenset[str]]


@dataclass(frozen=True, slots=True)
class Unassigned:
    """An eval file that no agent of this run can be found for. ``others``: the folders it belongs to instead."""

    problems: tuple[Problem, ...]
    others: tuple[Path, ...] = ()


class AgentAssignment:
    """The agents of a run by where they lie. ``others`` are agent folders that are not part of it."""

    def __init__(
        self, agents: Sequence[AgentSettings], others: Iterable[Path], workspace: Path, app_names: AppNames
    ) -> None:
        self._agents = tuple(agents)
        self._workspace = workspace
        self._app_names = app_names
        self._at: dict[Path, list[AgentSettings]] = defaultdict(list)
        for agent in agents:
            self._at[agent.path].append(agent)
        self._folders = {*self._at, *others}
        self._below: dict[Path, list[Path]] = defaultdict(list)
        for folder in sorted(self._folders):
            self._below[folder.parent].append(folder)

    def agents_for(self, file: Path) -> tuple[AgentSettings, ...] | Unassigned:
        """The agents a file is run against; several only when they share the folder (two interpreters, say)."""
        nearest = self._nearest(file)
        if len(nearest) != 1 and len(self._folders) > 1:
            named = self._agents_by_app(file, nearest or sorted(self._folders))
            if isinstance(named, Unassigned):
                return named
            nearest = named or nearest
        if not nearest and len(self._folders) == 1:
            nearest = sorted(self._folders)
        if len(nearest) != 1:
            return self._unassigned(file, nearest)
        return tuple(self._at.get(nearest[0], ())) or Unassigned((self._not_in_run(file, nearest[0]),), tuple(nearest))

    def nearby(self, file: Path) -> tuple[AgentSettings, ...]:
        """The agents of this run that a file lies in or beside, or names as its app."""
        nearest = self._nearest(file)
        named = self._agents_by_app(file, nearest or sorted(self._folders)) if len(nearest) != 1 else []
        folders = nearest if isinstance(named, Unassigned) else named or nearest
        return tuple(agent for folder in folders for agent in self._at.get(folder, ()))

    def _nearest(self, file: Path) -> list[Path]:
        """The agent folder the file is in, or those beside it or beside a folder it is in, nearest first."""
        for folder in file.parents:
            if folder in self._folders:
                return [folder]
            if folder in self._below:
                return self._below[folder]
            if folder == self._workspace:
                break
        return []

    def _agents_by_app(self, file: Path, among: Sequence[Path]) -> list[Path] | Unassigned:
        """The agents among these that a session_input of the file names as its app."""
        try:
            apps = self._app_names(file)
        except EvalFileError as error:
            return Unassigned(tuple(error.problems) or (Problem(file, error.message, hint=error.hint),))
        return [folder for folder in among if {folder.name, *(agent.name for agent in self._at[folder])} & apps]

    def _unassigned(self, file: Path, nearest: Sequence[Path]) -> Unassigned:
        where = [relative_name(folder, self._workspace) for folder in nearest]
        message = f"may belong to {' or '.join(where)}" if where else "lies beside no agent"
        hint = "name its agent: session_input.app_name in the file, or evals of an agent in agent-eval.yaml"
        all_agents = ", ".join(relative_name(folder, self._workspace) for folder in sorted(self._folders)[:10])
        rest = "" if where else f", and its session_input.app_name is none of: {all_agents}"
        return Unassigned((Problem(file, message + rest, hint=hint),))

    def _not_in_run(self, file: Path, folder: Path) -> Problem:
        name = relative_name(folder, self._workspace)
        return Problem(file, f"belongs to the agent {name}, which is not part of this run", hint=f"--agent {name}")
