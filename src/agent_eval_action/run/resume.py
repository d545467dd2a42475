"""What an earlier run already has: an index of its attempts, each read back only when it is its turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agent_eval_action.errors import ResultsError
from agent_eval_action.model.result import Attempt, AttemptKey, CaseKey
from agent_eval_action.model.transcript import ATTEMPTS, lines, parse
from agent_eval_action.run.plan import Plan

_ASIDE = "attempts.previous.jsonl"


@dataclass
class Earlier:
    """Attempts of an earlier run that still count: same case definition, and the agent did answer.

    Re-runs and the control's attempts are among them; those of the base are asked for with its commit.
    """

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
        with path.open("rb") as file:
            file.seek(offset)
            return parse(path, number, file.readline())

    def add(self, path: Path, wanted: dict[CaseKey, str]) -> None:
        """Index one file. A line that cannot be read is an attempt to make again."""
        for number, offset, line in lines(path):
            try:
                attempt = parse(path, number, line)
            except ResultsError:
                continue
            if attempt.error is None and wanted.get(attempt.key.case_key) == attempt.case_digest:
                self._at[attempt.key, attempt.commit] = (path, number, offset)


def earlier(folder: Path, out: Path, plan: Plan) -> Earlier:
    """Index the run in ``folder``. Raises ResultsError when there is none.

    Where it is written to again (``out``), its transcript is moved aside first and removed by
    :func:`forget` when the new run is complete: a crash in between loses nothing.
    """
    wanted = dict(plan.digests())
    found = Earlier()
    path, aside = folder / ATTEMPTS, folder / _ASIDE
    if not path.exists() and not aside.exists():
        raise ResultsError(
            f"there is no run to resume in {folder}", hint=f"--resume takes a folder with {ATTEMPTS} in it"
        )
    if folder.resolve() == out.resolve() and path.exists():
        _join(path, aside)
        path = aside
    for file in (aside, path):
        if file.exists():
            found.add(file, wanted)
    return found


def _join(path: Path, aside: Path) -> None:
    if not aside.exists():
        path.rename(aside)
        return
    with aside.open("ab") as file:  # a run that was itself resumed, and died: keep both
        for _, _, line in lines(path):
            file.write(line)
    path.unlink()


def forget(out: Path) -> None:
    """Remove the transcript that was moved aside."""
    (out / _ASIDE).unlink(missing_ok=True)
