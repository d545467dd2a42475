"""``--resume``: find the attempts of an earlier run that are still valid, by digests of what they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.config.options import AGENT_ENTRY, OPTIONS
from agent_eval_action.diagnostics.suggestions import plural
from agent_eval_action.errors import OutputError, ResultsError
from agent_eval_action.folders import OutputFolder, open_file, real_path, relative
from agent_eval_action.git.repository import Repository
from agent_eval_action.llm.credentials import OPENAI_URLS, VERTEX_SWITCHES
from agent_eval_action.results.base import CaseKey, json_digest
from agent_eval_action.results.run_result import AgentConditions, Attempt, AttemptError, AttemptKey, Provenance
from agent_eval_action.results.transcripts import ATTEMPTS, parse_attempt, read_line, read_lines
from agent_eval_action.run.plan import Plan

_PREVIOUS: Final = "attempts.previous.jsonl"
_SKIPPED_FOLDERS: Final = frozenset(
    {".git", ".agent-eval", "__pycache__", "node_modules", ".venv"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis"}
)
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_MODEL_URLS: Final = (*OPENAI_URLS, *VERTEX_SWITCHES, "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL")


def attempt_provenance(
    settings: Settings, agents: Collection[AgentSettings], environ: Mapping[str, str], hidden: Collection[Path]
) -> dict[str, Provenance]:
    """Return each agent's provenance by name, without the environment, which is added after the start. Blocks.

    ``hidden``: files that no agent sees, relative to the workspace; cases and criteria have digests of their own.
    Call this before any agent runs, since agents may write to the checkout.
    """
    excluded = {settings.out, settings.cache_dir, *(settings.workspace / path for path in hidden)}
    code = _code_digest(settings.workspace, environ, excluded)
    judges = json_digest([settings.llm.openai_base_url, {name: environ.get(name, "") for name in _MODEL_URLS}])
    found = {}
    for agent in agents:
        env = {
            name: value if value is not None else environ.get(name, "")
            for name, value in agent.env.items()
            if not _SECRET.search(name)  # a new key does not change answers
        }
        path = os.path.relpath(agent.path, settings.workspace)
        recording = _file_digest(agent.recording / ATTEMPTS) if agent.recording is not None else ""
        comparable = {"path": path, "recording": recording, "env": [sorted(agent.env), env]}
        decisive = [option.name for option in AGENT_ENTRY.values() if option.info.decides_answers]
        digest = json_digest({name: comparable.get(name, getattr(agent, name)) for name in decisive})
        found[agent.name] = Provenance(code=code, settings=digest, judges=judges)
    return found


def environment_digest(conditions: AgentConditions) -> str:
    """Return the digest of the environment in which an agent started."""
    return json_digest([conditions.python, conditions.adk_version, conditions.packages_digest])


def tracked_digest(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the digest of the files that git tracks, which steps of a job may have changed; without git, of all."""
    excluded = {settings.out, settings.cache_dir}
    return _code_digest(settings.workspace, environ, excluded, Repository(settings.workspace, environ).tracked("*"))


def _code_digest(
    workspace: Path, environ: Mapping[str, str], excluded: Collection[Path], listed: Collection[str] | None = None
) -> str:
    """Digest every file of the checkout except the excluded: an agent may import or read any of them.

    In a git repository ignored files except ``.env`` are left out: they are agents' logs and databases. ``listed``:
    digest these instead.
    """
    digest = hashlib.sha256()
    listed = listed if listed is not None else Repository(workspace, environ).listed()
    for path in (workspace / name for name in sorted(listed)) if listed is not None else _walk(workspace):
        if any(path == place or place in path.parents for place in excluded):
            continue
        name = path.relative_to(workspace).as_posix().encode("utf-8", "surrogateescape")
        digest.update(name + b"\0" + _file_digest(path).encode() + b"\0")
    return digest.hexdigest()[:16]


def _walk(workspace: Path) -> Iterator[Path]:
    """Yield files in a stable order, without following links."""
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and not Path(folder, name, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, name) for name in sorted(names))


def _file_digest(path: Path) -> str:
    """Digest a file's content, or a link's target. An unreadable file counts as empty."""
    try:
        if path.is_symlink():
            return f"link {path.readlink()}"
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def cli_arguments(settings: Settings, selectors: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of ``agent-eval run`` that repeat this run from the workspace."""
    workspace, config = settings.workspace, settings.config
    elsewhere = config and config.is_relative_to(workspace) and config.parent != workspace
    from_workspace = {
        "config": [relative(config, workspace)] if config and elsewhere else [],
        "agent": [relative(agent.path, workspace) for agent in settings.agents if settings.only_agents],
        "shard": [str(settings.shard)] if settings.shard else [],
    }
    words = list(selectors)
    for option in OPTIONS:
        if option.info.repeats_run:
            for value in from_workspace.get(option.name, option.of_settings(settings)):
                words += [str(option.flag), value]
    return tuple(words)


@dataclass
class PreviousAttempts:
    """Attempts of an earlier run that are still valid: the case's definition is unchanged, and the agent answered.

    They include re-runs, and attempts of the base commit's agent, which are looked up with their commit. ``current``:
    the provenance of each agent now. ``unaffected``: agents that no changed file of the checkout affects. ``outdated``
    counts attempts by agent and change.
    """

    current: Mapping[str, Provenance] = field(default_factory=dict)
    workspace: Path | None = None
    unaffected: frozenset[str] = frozenset()
    outdated: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    _places: dict[tuple[AttemptKey, str], tuple[Path, int, int]] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: AttemptKey) -> bool:
        return (key, "") in self._places

    def get(self, key: AttemptKey, commit: str = "") -> Attempt | None:
        """Read the attempt, without its scores if the judges have changed. None: it must be made."""
        place = self._places.get((key, commit))
        if place is None:
            return None
        path, number, offset = place
        try:
            attempt = parse_attempt(path, number, read_line(path, offset, self.workspace))
        except OSError:  # the file is gone
            return None
        now = self.current.get(attempt.agent)
        other_judges = now is not None and now.judges != attempt.provenance.judges
        return attempt.model_copy(update={"scores": ()}) if other_judges else attempt

    def provenance_now(self, agent: str, started: AgentConditions | AttemptError, *, commit: str = "") -> Provenance:
        """Return the provenance of a new attempt; its environment is empty if the agent does not start.

        ``commit``: the agent's commit, "" for the checkout; the code of a commit needs no digest.
        """
        known = self.current.get(agent)
        if known is None:
            return Provenance()
        environment = "" if isinstance(started, AttemptError) else environment_digest(started)
        return known.model_copy(update={"environment": environment, **({"code": ""} if commit else {})})

    def add_file(self, path: Path, digests: Mapping[CaseKey, str]) -> None:
        """Index one file, given the current digests of cases. An attempt on an unreadable line is made again."""
        for number, offset, line in read_lines(path, self.workspace):
            try:
                attempt = parse_attempt(path, number, line)
            except ResultsError:
                continue
            if attempt.error is not None or digests.get(attempt.key.case_key) != attempt.case_digest:
                continue
            now, then = self.current.get(attempt.agent), attempt.provenance
            other_code = now is not None and now.code != then.code and attempt.agent not in self.unaffected
            if other_code and attempt.arm == "head":
                self.outdated[attempt.agent, "files of the checkout changed"] += 1
            elif now is not None and now.settings != then.settings:
                self.outdated[attempt.agent, "the agent's settings changed"] += 1
            else:
                self._places[attempt.key, attempt.commit] = (path, number, offset)

    def warnings(self) -> Iterator[str]:
        """Yield which attempts of the earlier run are not kept, and why."""
        for (agent, change), count in sorted(self.outdated.items()):
            are = "is" if count == 1 else "are"
            yield f"{agent}: {plural(count, 'attempt')} of the earlier run {are} not kept, because {change}"


def load_previous_attempts(
    folder: Path,
    out: OutputFolder,
    plan: Plan,
    current: Mapping[str, Provenance] | None = None,
    *,
    workspace: Path | None = None,
    unaffected: frozenset[str] = frozenset(),
) -> PreviousAttempts:
    """Index the run in ``folder``. ``current``: the provenance of each agent now; ``unaffected``: see PreviousAttempts.

    A transcript in ``out``, which is about to be overwritten, is moved aside first. ``discard_previous_attempts``
    removes it when the new run is complete, so that a crash in between loses nothing.

    Raises ResultsError if there is no run, OutputError if its transcript cannot be moved aside.
    """
    source = OutputFolder.at(folder, workspace)
    if not source.holds(ATTEMPTS) and not source.holds(_PREVIOUS):
        raise ResultsError(
            f"there is no run to resume in {folder}", hint=f"--resume takes a folder with {ATTEMPTS} in it"
        )
    if real_path(source.path) == real_path(out.path) and out.holds(ATTEMPTS):
        try:
            if out.holds(_PREVIOUS):  # the run was itself resumed and died: keep both
                with out.append(_PREVIOUS) as file:
                    file.writelines(line for _, _, line in read_lines(out.path / ATTEMPTS))
                out.remove(ATTEMPTS)
            else:
                out.rename(ATTEMPTS, _PREVIOUS)
        except OSError as error:
            path = out.path / _PREVIOUS
            hint = "free disk space, or choose another folder with --out"
            raise OutputError(f"{path} cannot be written: {error.strerror or error}", hint=hint) from error
    previous, digests = PreviousAttempts(current or {}, workspace, unaffected), dict(plan.digests())
    for name in (_PREVIOUS, ATTEMPTS):
        if source.holds(name):
            previous.add_file(source.path / name, digests)
    return previous


def discard_previous_attempts(out: OutputFolder) -> None:
    """Remove the transcript that was moved aside."""
    with contextlib.suppress(OSError):  # the next --resume would read it again, which is harmless
        out.remove(_PREVIOUS)
