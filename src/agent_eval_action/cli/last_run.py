"""``run --worse`` and ``run --last-failed``: the cases of the last run that are run again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent_eval_action.api.evaluation import discover_eval_files
from agent_eval_action.cli.outputs import results_file
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import relative
from agent_eval_action.formats import load_eval_file, select_cases
from agent_eval_action.reports import ReportInput, results_json
from agent_eval_action.reports.next_steps import quoted_case
from agent_eval_action.reports.prose import listed
from agent_eval_action.reports.view import NOT_GREEN, WORSE
from agent_eval_action.results.run_result import CaseKey, RunResult

_NAMES_SHOWN: Final = 20


def read_last_run(settings: Settings, results: Path | None = None) -> RunResult:
    """The decided result of the last run, or of the one in ``results``. Raises ResultsError where there is none."""
    path = results_file(results) if results is not None else settings.out / results_json.RESULTS
    shown, hint = relative(path, settings.workspace), "run `agent-eval run` first"
    if not path.exists():
        raise ResultsError(f"there are no results at {shown}, so it is not known what got worse", hint=hint)
    result = results_json.read(path)
    if result.decision is None:
        raise ResultsError(f"{shown} holds no decision, so it is not known what got worse", hint=hint)
    return result


def cases_of_last_run(settings: Settings, selectors: Sequence[str], *, worse: bool) -> tuple[tuple[str, ...], str]:
    """EVALSET arguments for the cases that got worse in the last run, else all that were not green; and a sentence.

    ``selectors`` and the agents of ``settings`` narrow them down. Raises ResultsError where no case is left to run.
    """
    result, groups = read_last_run(settings), WORSE if worse else NOT_GREEN
    report = ReportInput(result)
    views = report.view.cases
    wanted = {view.key for view in views if view.group in groups and view.owner is not None}
    what = "got worse" if worse else "were not green"
    if not wanted:
        hint = "`agent-eval run` runs every case"
        if worse and any(view.group in NOT_GREEN for view in views):
            hint = "`agent-eval run --last-failed` runs the cases that were not green for another reason"
        none = "no case got worse" if worse else "every case was green"
        raise ResultsError(f"{none} in the last run ({report.decision.outcome})", hint=hint)
    chosen = _still_there(settings, selectors, wanted)
    cases = [case for ids in chosen.values() for case in ids]
    gone = len(wanted) - len(cases)
    left_out = (
        f"{plural(gone, 'more case')} that {what} {'is' if gone == 1 else 'are'} not in the eval files of this run"
    )
    if not cases:
        raise ResultsError(left_out.replace("more ", ""), hint="`agent-eval run` runs every case")
    sentence = f"running {plural(len(cases), 'case')} that {what} in the last run: "
    names = str(listed(cases[:_NAMES_SHOWN], len(cases)))
    words = tuple(f"{path}:{','.join(map(quoted_case, ids))}" for path, ids in chosen.items())
    return words, sentence + names + (f"; {left_out}" if gone else "")


def _still_there(settings: Settings, selectors: Sequence[str], wanted: set[CaseKey]) -> dict[str, list[str]]:
    """Those of the wanted cases that a run of ``selectors`` has, by the path of their file as it is typed here."""
    chosen: dict[str, list[str]] = {}
    sets = {(key.agent, key.eval_set) for key in wanted}
    for found in discover_eval_files(settings, selectors).sets:
        if (found.agent.name, found.key) not in sets:
            continue
        loaded = load_eval_file(
            found.path, workspace=settings.workspace, session_file=found.session_file, columns=found.columns
        )
        cases = select_cases(loaded.eval_set, found.case_ids).eval_cases
        ids = [case.eval_id for case in cases if CaseKey(found.agent.name, found.key, case.eval_id) in wanted]
        known = chosen.setdefault(os.path.relpath(found.path, Path.cwd()), [])
        known += [case for case in ids if case not in known]
    return {path: ids for path, ids in chosen.items() if ids}
