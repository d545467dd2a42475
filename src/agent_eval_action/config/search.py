"""The search behind ``discovery``: files as selected, as configured or as found, each with its agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from agent_eval_action.config.agents import AgentSettings, unique_names
from agent_eval_action.config.composite import EvalPattern
from agent_eval_action.config.owners import AppNames, Owners, Unowned
from agent_eval_action.config.patterns import expand
from agent_eval_action.config.settings import Settings
from agent_eval_action.config.values import Refused, Where
from agent_eval_action.config.walk import MAX_ENTRIES, Walked, walk
from agent_eval_action.errors import EvalFileError, Problem

Selector = tuple[Path, Sequence[str]]


@dataclass
class Search:
    """What was found so far, and what is wrong with it.

    ``chosen`` maps an agent's name and a file to case ids, () for all; ``elsewhere`` counts the files
    of agent folders that are not part of this run, ``unrelated`` those that lie beside no agent.
    """

    settings: Settings
    app_names: AppNames
    may_lack: bool = False
    problems: list[Problem] = field(default_factory=list)
    chosen: dict[tuple[str, Path], tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Counter[Path] = field(default_factory=Counter)
    unrelated: int = 0

    def run(self, selectors: Sequence[Selector]) -> None:
        """Fill ``chosen``, or raise EvalFileError with every problem."""
        if selectors:
            self._select(selectors)
        else:
            self._configured()
        if self.problems:
            raise EvalFileError("it is not clear what to run", problems=tuple(self.problems))

    @cached_property
    def walked(self) -> Walked:
        """Everything below the start, looked through once and only when it must be."""
        walked = walk(self.settings.start)
        if not walked.complete:
            message = f"{self.settings.start} has more than {MAX_ENTRIES} files: too many to look through"
            raise EvalFileError(message, hint="name agents and their evals in agent-eval.yaml")
        return walked

    @property
    def agents_cli_datasets(self) -> tuple[Path, ...]:
        """agents-cli's files that were passed by; known only where the workspace was looked through."""
        return self.walked.agents_cli_datasets if "walked" in self.__dict__ else ()

    @cached_property
    def agents(self) -> tuple[AgentSettings, ...]:
        """The configured agents, else every agent folder found."""
        if self.settings.agents:
            return self.settings.agents
        workspace, defaults = self.settings.workspace, self.settings.agent_defaults
        folders = self.walked.agents
        if not folders and not self.may_lack:
            message = "no folder holds an agent.py with root_agent, app or get_agent_async, or a root_agent.yaml"
            hint = "name the agent's folder: --agent DIR, or agent: DIR in agent-eval.yaml"
            raise EvalFileError(f"no agent found: below {self.settings.start} {message}", hint=hint)
        common = {name: getattr(defaults, name) for name in type(defaults).model_fields}
        names = unique_names(folders, workspace)
        return tuple(AgentSettings(path=f, name=n, **common) for f, n in zip(folders, names, strict=True))

    @cached_property
    def _owners(self) -> Owners:
        mine = {agent.path for agent in self.agents}
        others = [folder for folder in self.walked.agents if folder not in mine]
        return Owners(self.agents, others, self.settings.workspace, self.app_names)

    @cached_property
    def _own(self) -> dict[str, tuple[Path, ...]]:
        """The files that agents name as their own."""
        return {agent.name: self._files(agent.evals) for agent in self.agents if agent.evals}

    def _select(self, selectors: Sequence[Selector]) -> None:
        """The files named for this run."""
        for path, case_ids in selectors:
            where = Where(Path.cwd(), Path(path))
            for file in self._files((EvalPattern(str(path), where),)):
                for agent in self._run_by(file):
                    self._choose(agent, file, case_ids)

    def _configured(self) -> None:
        """The agents' own files and the run's; discovered ones for agents that have neither."""
        for agent in self.agents:
            for file in self._own.get(agent.name, ()):
                self._choose(agent, file)
        if self.settings.evals:
            for file in self._files(self.settings.evals):
                for agent in self._run_by(file):
                    self._choose(agent, file)
        elif any(not agent.evals for agent in self.agents):
            self._discovered()

    def _discovered(self) -> None:
        claimed = {file for files in self._own.values() for file in files}
        files = [file for file in self.walked.eval_files if file not in claimed]
        for file in self._own_of_named_agents(files) if self.settings.only_agents else files:
            owners = self._owners.of(file)
            if isinstance(owners, Unowned):
                self.elsewhere.update(owners.others)
                self.problems += () if owners.others else owners.problems
                continue
            for agent in owners:
                if not agent.evals:
                    self._choose(agent, file)

    def _own_of_named_agents(self, files: Sequence[Path]) -> Sequence[Path]:
        """Without files of nobody where the agents that were asked for have files of their own.

        Whoever names an agent's folder inside a larger checkout means that agent's files.
        """
        near = {file: self._owners.near(file) for file in files}
        if not any(near.values()):
            return files
        strays = {file for file in files if not near[file] and self._is_stray(file)}
        self.unrelated = len(strays)
        return [file for file in files if file not in strays]

    def _is_stray(self, file: Path) -> bool:
        owners = self._owners.of(file)
        return not isinstance(owners, Unowned) or not owners.others

    def _run_by(self, file: Path) -> Sequence[AgentSettings]:
        """The agents a named file is run against: those that name it, the only one there is, else its owners."""
        naming = [agent for agent in self.agents if file in self._own.get(agent.name, ())]
        if naming:
            return naming
        if len(self.settings.agents) == 1:
            return self.settings.agents
        owners = self._owners.of(file)
        if isinstance(owners, Unowned):
            self.problems += owners.problems
            return ()
        return owners

    def _files(self, patterns: Sequence[EvalPattern]) -> tuple[Path, ...]:
        files: dict[Path, None] = {}
        for pattern in patterns:
            try:
                files |= dict.fromkeys(expand(pattern))
            except Refused as refused:
                if self.may_lack:
                    continue
                self.problems += [
                    pattern.where.problem(flaw.message, value=flaw.shown, hint=flaw.hint) for flaw in refused.flaws
                ]
        return tuple(files)

    def _choose(self, agent: AgentSettings, file: Path, case_ids: Sequence[str] = ()) -> None:
        """Whole files win over single cases of them; ids named twice are left for the format to refuse."""
        key = (agent.name, file)
        earlier = self.chosen.get(key)
        whole = not case_ids or earlier == ()
        self.chosen[key] = () if whole else (*(earlier or ()), *case_ids)
