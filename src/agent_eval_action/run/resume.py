"""What an earlier run already has: an index of its attempts, each read back only when it is its turn."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_eval_action.errors import OutputError, ResultsError
from agent_eval_action.folders import OutputFolder, real_path
from agent_eval_action.model.result import Attempt, AttemptKey, CaseKey, MadeWith
from agent_eval_action.model.transcript import ATTEMPTS, line_at, lines, parse
from agent_eval_action.run.plan import Plan

_ASIDE = "attempts.previous.jsonl"


@dataclass
class Earlier:
    """Attempts of an earlier run that still count: same case definition, and the agent did answer.

    Re-runs and the control's attempts are among them; those of the base are asked for with its commit.
    ``expected``: what attempts of each agent are made with now. ``outdated`` counts those made with something else.
    """

    expected: Mapping[str, MadeWith] = field(default_factory=dict)
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


def earlier(
    folder: Path,
    out: OutputFolder,
    plan: Plan,
    expected: Mapping[str, MadeWith] | None = None,
    *,
    workspace: Path | None = None,
) -> Earlier:
    """Index the run in ``folder``. ``expected``: what attempts of each agent are made with now.

    Raises ResultsError when there is no run, OutputError when its transcript cannot be moved aside.

    Where it is written to again (``out``), its transcript is moved aside first and removed by
    :func:`forget` when the new run is complete: a crash in between loses nothing.
    """
    wanted = dict(plan.digests())
    before = OutputFolder.at(folder, workspace)
    found = Earlier(expected or {}, workspace=workspace)
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


def forget(out: OutputFolder) -> None:
    """Remove the transcript that was moved aside."""
    with contextlib.suppress(OSError):  # what stays is read again by the next --resume, and is of no harm
        out.remove(_ASIDE)
