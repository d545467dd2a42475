"""What an attempt is made with, as digests: the code, the settings of the agent and who judges. For ``--resume``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action import git
from agent_eval_action.config.assignment import AgentSettings
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import OutputError, ResultsError
from agent_eval_action.folders import OutputFolder, real_path
from agent_eval_action.llm.credentials import OPENAI_URLS, VERTEX_SWITCHES
from agent_eval_action.results.run_result import AgentConditions, Attempt, AttemptKey, CaseKey, Provenance
from agent_eval_action.results.transcripts import ATTEMPTS, line_at, lines, parse
from agent_eval_action.run.loader import relative
from agent_eval_action.run.plan import Plan

_SKIPPED: Final = frozenset(
    {".git", ".agent-eval", "__pycache__", "node_modules", ".venv"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis"}
)
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_WIRES: Final = (*OPENAI_URLS, *VERTEX_SWITCHES, "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL")


def attempt_provenance(
    settings: Settings, agents: Collection[AgentSettings], environ: Mapping[str, str], hidden: Collection[Path]
) -> dict[str, Provenance]:
    """Of each agent by its name, its environment apart, which is known when it has started. Blocks.

    ``hidden``: files that no agent sees, relative to the workspace; cases and criteria have digests of their own.
    Read before any agent runs, for it may write into the checkout.
    """
    ours = {settings.out, settings.cache_dir, *(settings.workspace / path for path in hidden)}
    code = _code_digest(settings.workspace, environ, ours)
    judges = _digest([settings.llm_openai_base_url, {name: environ.get(name, "") for name in _WIRES}])
    return {
        agent.name: Provenance(code=code, settings=_settings_digest(agent, settings, environ), judges=judges)
        for agent in agents
    }


def environment_digest(conditions: AgentConditions) -> str:
    """The digest of the environment an agent has started in."""
    return _digest([conditions.python, conditions.adk_version, conditions.packages_digest])


def _settings_digest(agent: AgentSettings, settings: Settings, environ: Mapping[str, str]) -> str:
    """What decides its answers besides its code. Values of secrets are left out: a new key gives no other answers."""
    env = {
        name: value if value is not None else environ.get(name, "")
        for name, value in agent.env.items()
        if not _SECRET.search(name)
    }
    path = os.path.relpath(agent.path, settings.workspace)
    recording = _file_digest(agent.recording / ATTEMPTS) if agent.recording is not None else ""
    return _digest([agent.driver, path, recording, sorted(agent.env), env])


def _code_digest(workspace: Path, environ: Mapping[str, str], ours: Collection[Path]) -> str:
    """Every file of the checkout but ours: what an agent imports or reads can lie anywhere in it.

    Where it is a repository, what git ignores is left out but for ``.env``: logs and databases that agents write.
    """
    found = hashlib.sha256()
    listed = git.Repository(workspace, environ).listed()
    paths = (workspace / name for name in sorted(listed)) if listed is not None else _walked(workspace)
    for path in paths:
        if any(path == place or place in path.parents for place in ours):
            continue
        name = path.relative_to(workspace).as_posix().encode("utf-8", "surrogateescape")
        found.update(name + b"\0" + _file_digest(path).encode() + b"\0")
    return found.hexdigest()[:16]


def _walked(workspace: Path) -> Iterator[Path]:
    """Files in a stable order. No link is followed."""
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and not Path(folder, name, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, name) for name in sorted(names))


def _file_digest(path: Path) -> str:
    """Of a file's content, or of where a link leads; what cannot be read is like nothing."""
    try:
        if path.is_symlink():
            return f"link {path.readlink()}"
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def cli_arguments(settings: Settings, selectors: Sequence[str]) -> tuple[str, ...]:
    """What repeats a run from the workspace: a configuration that would not be found there, and what narrowed it."""
    words = list(selectors)
    config = settings.config
    if config and config.is_relative_to(settings.workspace) and config.parent != settings.workspace:
        words += ["--config", relative(config, settings.workspace)]
    for agent in settings.agents if settings.only_agents else ():
        words += ["--agent", relative(agent.path, settings.workspace)]
    for pattern in settings.case:
        words += ["--case", pattern]
    return tuple(words)


_ASIDE = "attempts.previous.jsonl"


@dataclass
class PreviousAttempts:
    """Attempts of an earlier run that still count: same case definition, and the agent did answer.

    Re-runs and the control's attempts are among them; those of the base are asked for with its commit.
    ``expected``: what attempts of each agent are made with now. ``outdated`` counts those made with something else.
    """

    expected: Mapping[str, Provenance] = field(default_factory=dict)
    outdated: Counter[tuple[str, str]] = field(default_factory=Counter)
    workspace: Path | None = None
    _at: dict[tuple[AttemptKey, str], tuple[Path, int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: AttemptKey) -> bool:
        return (key, "") in self._at

    def get(self, key: AttemptKey, commit: str = "") -> Attempt | None:
        """The attempt as recorded, or None."""
        at = self._at.get((key, commit))
        if at is None:
            return None
        path, number, offset = at
        try:
            attempt = parse(path, number, line_at(path, offset, self.workspace))
        except OSError:  # it is there no more: the attempt is made again
            return None
        now = self.expected.get(attempt.agent)
        if now is not None and now.judges != attempt.made_with.judges:
            return attempt.model_copy(update={"scores": ()})  # its answers hold, what judges said of them does not
        return attempt

    def add(self, path: Path, wanted: dict[CaseKey, str]) -> None:
        """Index one file. A line that cannot be read is an attempt to make again."""
        for number, offset, line in lines(path, self.workspace):
            try:
                attempt = parse(path, number, line)
            except ResultsError:
                continue
            if attempt.error is not None or wanted.get(attempt.key.case_key) != attempt.case_digest:
                continue
            if changed := self._changed(attempt):
                self.outdated[attempt.agent, changed] += 1
            else:
                self._at[attempt.key, attempt.commit] = (path, number, offset)

    def _changed(self, attempt: Attempt) -> str:
        """What is not as it was when this attempt was made; "" for nothing. The base commit's code is its commit."""
        now, then = self.expected.get(attempt.agent), attempt.made_with
        if now is None:
            return ""
        if attempt.arm == "head" and now.code != then.code:
            return "code"
        return "settings" if now.settings != then.settings else ""

    def warnings(self) -> Iterator[str]:
        """What of the earlier run is not kept, and why."""
        for (agent, what), attempts in sorted(self.outdated.items()):
            count = f"{attempts:,} attempt{'' if attempts == 1 else 's'}"
            yield f"{agent}: {count} of the earlier run {_is(attempts)} not kept, for {_WORDS[what]} since"


_WORDS = {"code": "files of the checkout changed", "settings": "the agent's settings changed"}


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def load_previous_attempts(
    folder: Path,
    out: OutputFolder,
    plan: Plan,
    expected: Mapping[str, Provenance] | None = None,
    *,
    workspace: Path | None = None,
) -> PreviousAttempts:
    """Index the run in ``folder``. ``expected``: what attempts of each agent are made with now.

    Raises ResultsError when there is no run, OutputError when its transcript cannot be moved aside.

    Where it is written to again (``out``), its transcript is moved aside first and removed by
    :func:`forget` when the new run is complete: a crash in between loses nothing.
    """
    wanted = dict(plan.digests())
    before = OutputFolder.at(folder, workspace)
    found = PreviousAttempts(expected or {}, workspace=workspace)
    if not before.holds(ATTEMPTS) and not before.holds(_ASIDE):
        raise ResultsError(
            f"there is no run to resume in {folder}", hint=f"--resume takes a folder with {ATTEMPTS} in it"
        )
    if real_path(before.path) == real_path(out.path) and out.holds(ATTEMPTS):
        try:
            _move_aside(out)
        except OSError as error:
            path = out.path / _ASIDE
            hint = "free disk space, or choose another folder with --out"
            raise OutputError(f"{path} cannot be written: {error.strerror or error}", hint=hint) from error
    for name in (_ASIDE, ATTEMPTS):
        if before.holds(name):
            found.add(before.path / name, wanted)
    return found


def _move_aside(out: OutputFolder) -> None:
    if not out.holds(_ASIDE):
        out.rename(ATTEMPTS, _ASIDE)
        return
    with out.append(_ASIDE) as file:  # a run that was itself resumed, and died: keep both
        for _, _, line in lines(out.path / ATTEMPTS):
            file.write(line)
    out.remove(ATTEMPTS)


def discard_previous_attempts(out: OutputFolder) -> None:
    """Remove the transcript that was moved aside."""
    with contextlib.suppress(OSError):  # what stays is read again by the next --resume, and is of no harm
        out.remove(_ASIDE)
