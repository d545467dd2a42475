"""``agent-eval watch``: after each save, run again what the saved files affect and show the verdict."""

from __future__ import annotations

import math
import os
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from watchfiles import Change, DefaultFilter, watch

from agent_eval_action.cli.log import console, print_line
from agent_eval_action.cli.outputs import finish
from agent_eval_action.cli.session import evaluated, output_folder, settings_for
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.errors import AgentEvalError, ExitCode
from agent_eval_action.folders import relative
from agent_eval_action.git.repository import Repository
from agent_eval_action.results.run_result import RunStatus
from agent_eval_action.results.transcripts import ATTEMPTS
from agent_eval_action.run.affected import touched_agents
from agent_eval_action.run.loader import discover_eval_files

_SHOWN: Final = 3
_BY_TOOLS: Final = DefaultFilter()
_USER_FILES: Final = ("accept.yaml", "baseline.json")
"""Files of ``.agent-eval`` that users edit; runs write the rest."""
_READY_MS: Final = 500
_RUNS_UNTIL_AGENT_FILE: Final = 2
"""If git does not track a file and it changes during this many runs, the agent writes it."""


def watch_command(flags: Mapping[str, Any], selectors: Sequence[str]) -> ExitCode:
    """Run after every save until Ctrl-C. Exit 0, or 130 if that interrupted a run."""
    workspace = settings_for(flags).settings.workspace
    on_terminate = signal.getsignal(signal.SIGTERM)
    with _Watcher(workspace) as watcher:
        loop = _Loop(flags, selectors, watcher)
        try:
            while loop.run():
                signal.signal(signal.SIGTERM, on_terminate)  # closing a run's event loop removed the handler
                loop.wait()
        except KeyboardInterrupt:
            print_line("")
            return ExitCode.PASS
    return ExitCode.INTERRUPTED


def _is_watched(change: Change, path: str) -> bool:
    """Whether a file is none that editors, tools and runs write, even if git tracks it."""
    place = Path(path)
    return _BY_TOOLS(change, path) and (".agent-eval" not in place.parts or place.name in _USER_FILES)


class _Watcher:
    """Collects saved paths in a thread. ``ready`` is set once no save can be missed."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.repository = Repository(workspace, os.environ)
        self._queue: queue.Queue[set[Path]] = queue.Queue()
        self._stop = threading.Event()
        self._error = ""
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        changes = watch(
            self.workspace,
            watch_filter=_is_watched,
            stop_event=self._stop,
            rust_timeout=_READY_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        try:
            for found in changes:
                self.ready.set()
                if found:
                    self._queue.put({Path(path) for _, path in found})
        except (OSError, RuntimeError) as error:  # e.g. the system's limit of watched files
            self._error = str(error)
            self._queue.put(set())
            self.ready.set()

    def saved(self, *, wait: bool) -> set[Path]:
        """Return the paths saved since the last call. ``wait``: block until there is one.

        Raises AgentEvalError if files cannot be watched.
        """
        if self._error:
            hint = "set WATCHFILES_FORCE_POLLING=1, which asks the files themselves"
            raise AgentEvalError(f"the files of {self.workspace} cannot be watched: {self._error}", hint=hint)
        found = self._queue.get() if wait else set()
        while not self._queue.empty():
            found |= self._queue.get()
        return found


@dataclass
class _Loop:
    """Runs one after the other. ``pending``: paths saved since the last run of everything; None before it.

    Ignores untracked files that the agent itself writes in each run: they would start runs for ever.
    """

    flags: Mapping[str, Any]
    selectors: Sequence[str]
    watcher: _Watcher
    pending: set[Path] | None = None
    _listed: frozenset[str] = frozenset()
    _written_in_runs: Counter[Path] = field(default_factory=Counter)
    _written_in_run: set[Path] = field(default_factory=set)
    _ended: float = 0.0

    def __post_init__(self) -> None:
        self._listed = self.watcher.repository.listed() or frozenset()

    def run(self) -> bool:
        """Run what the saved files affect. Returns False if the run was interrupted."""
        self._written_in_run.clear()
        out = console()
        if out.is_terminal:
            out.clear()
        try:
            status = self._evaluate()
        except AgentEvalError as error:
            print_line(f"error: {error}", style="red", lines=True)
            return True
        finally:
            self._ended = time.time()
        if status is RunStatus.COMPLETE:
            self.pending = set()
        return status is not RunStatus.INTERRUPTED

    def _evaluate(self) -> RunStatus:
        resolved = settings_for(self.flags)
        settings, unaffected = resolved.settings, frozenset[str]()
        if self.pending is not None:
            names = sorted(relative(path, settings.workspace) for path in self.pending)
            print_line(f"saved: {shortlist(names, _SHOWN)}", style="dim")
            found = discover_eval_files(settings, self.selectors)
            agents = frozenset(agent.name for agent in found.agents)
            unaffected = agents - touched_agents(settings, found, self.pending)
        if settings.resume is None and settings.output_folder(settings.out).holds(ATTEMPTS):
            resolved = replace(resolved, settings=settings.model_copy(update={"resume": settings.out}))
        running = evaluated(resolved, self.selectors, verbosity="cases", flags=self.flags, unaffected=unaffected)
        with output_folder(settings), running as result:
            finish(result, settings, verbosity="cases")
        return result.status

    def wait(self) -> None:
        """Wait until a file is saved that a run may read."""
        self.watcher.ready.wait()
        found = self._saved_by_others(self.watcher.saved(wait=False))
        if not found:
            print_line("waiting for a save; Ctrl-C ends", style="dim")
        while not found:
            found = self._saved_by_others(self.watcher.saved(wait=True))
        if self.pending is not None:
            self.pending |= found

    def _saved_by_others(self, saved: set[Path]) -> set[Path]:
        """Return paths that no run wrote: those that git does not ignore, and ``.env`` files.

        Saves during the last run may be reported after its end.
        """
        watcher, listed = self.watcher, self.watcher.repository.listed()
        if saved and listed is not None:
            known, self._listed = self._listed | listed, listed  # removed files are in the earlier listing
            saved = {path for path in saved if relative(path, watcher.workspace) in known}
        during = {path for path in saved if _modified(path) <= self._ended} - self._written_in_run
        tracked = watcher.repository.tracked("*") or ()
        self._written_in_run |= during
        self._written_in_runs.update(during - {watcher.workspace / name for name in tracked})
        own = {path for path in self._written_in_run if self._written_in_runs[path] >= _RUNS_UNTIL_AGENT_FILE}
        return {path for path in saved if path not in own or _modified(path) > self._ended}


def _modified(path: Path) -> float:
    """Return a file's modification time in seconds; infinity if it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return math.inf
