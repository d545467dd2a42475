"""``agent-eval accept``: writes intended changes of the agent into .agent-eval/accept.yaml."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_eval_action import api
from agent_eval_action.baseline import accepted
from agent_eval_action.baseline.accepted import ACCEPT, KnownNames
from agent_eval_action.cli.outputs import results_file
from agent_eval_action.cli.session import print_line, settings_for
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import did_you_mean, plural
from agent_eval_action.errors import ExitCode, ResultsError, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.gate.verdict import worse_pairs
from agent_eval_action.reports import results_json
from agent_eval_action.reports.next_steps import next_steps
from agent_eval_action.reports.prose import listed
from agent_eval_action.results.decision import PairChange
from agent_eval_action.results.run_result import RunResult
from agent_eval_action.run.loader import Loader

_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Scope:
    """What was named on the command line."""

    cases: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    agent: str | None = None
    eval_set: str | None = None


def accept_command(scope: Scope, reason: str, results: Path | None, config: str | None, *, worse: bool) -> ExitCode:
    """Accept the cases that are named, or every pair that got worse in a finished run."""
    if not reason.strip():
        raise UsageError("an accepted change needs a reason", hint='--reason "why this is intended"')
    if worse == (scope != Scope()):
        raise UsageError("name either cases, or --worse for everything that got worse in the last run")
    settings = settings_for({"config": config} if config else {}).settings
    if worse:
        _accept_worse(settings, reason.strip(), results)
    else:
        _append(settings, _named(scope, _names(settings), reason.strip()))
    return ExitCode.PASS


def _names(settings: Settings) -> KnownNames:
    """The names of the suite as its files have it."""
    return api.names_of(Loader(settings.workspace).plan(api.discover_eval_files(settings), 1))


def _accept_worse(settings: Settings, reason: str, results: Path | None) -> None:
    path = results_file(results) if results is not None else settings.out / results_json.RESULTS
    if not path.exists():
        raise ResultsError(
            f"there are no results at {relative(path, settings.workspace)}, so it is not known what got worse",
            hint="run `agent-eval run` first, or name the results of another run: --from RESULTS",
        )
    result = results_json.read(path)
    if result.decision is None:
        raise ResultsError(f"{path} holds no decision", hint="name the results of a finished run: --from RESULTS")
    if worse := worse_pairs(result.decision):
        _append(settings, _entries(worse, result, reason))
    else:
        print_line("nothing got worse in that run, so there is nothing to accept")
    for step in next_steps(result):
        if step.places:
            print_line(str(step.text))
            for place in step.places:
                print_line(f"  {place}")


def _named(scope: Scope, names: KnownNames, reason: str) -> list[dict[str, str]]:
    """The entries for what was named. Raises UsageError for a name there is none of."""
    where = {word: value for word in ("agent", "eval_set") if (value := getattr(scope, word))}
    given = {"case": scope.cases, "criterion": scope.criteria, **{word: (value,) for word, value in where.items()}}
    for word, values in given.items():
        known = getattr(names, word)
        for value in values:
            if value not in known:
                hint = did_you_mean(value, known) or f"known: {listed(sorted(known)[:_NAMES_SHOWN], len(known))}"
                raise UsageError(f"there is no {word.replace('_', ' ')} {value!r}", hint=hint)
    if not scope.cases:
        raise UsageError("no case is named", hint="agent-eval accept CASE …, or --worse for all that got worse")
    criteria = [{"criterion": name} for name in scope.criteria] or [{}]
    return [{"case": case, **criterion, **where, "reason": reason} for criterion in criteria for case in scope.cases]


def _entries(worse: Sequence[PairChange], result: RunResult, reason: str) -> list[dict[str, str]]:
    """Agent and eval set are written only where another case has the same name."""
    times = Counter(case.case for owner in result.sets for case in owner.cases)
    return [
        {
            "case": pair.case,
            "criterion": pair.criterion,
            **({"agent": pair.agent, "eval_set": pair.eval_set} if times[pair.case] > 1 else {}),
            "reason": reason,
        }
        for pair in worse
    ]


def _append(settings: Settings, entries: Sequence[Mapping[str, str]]) -> None:
    path = settings.workspace / ACCEPT
    added = accepted.append(path, entries, workspace=settings.workspace)
    shown = relative(path, settings.workspace)
    for entry in added:
        print_line(f"accepted: {' › '.join(filter(None, (entry.case, entry.criterion)))}")
    if left := len(entries) - len(added):
        already = "change is in it already" if left == 1 else "changes are in it already"
        print_line(f"{shown}: {left:,} {already} with this reason; give another reason if the check blocks them still")
    if added:
        print_line(
            f"{shown}: {plural(len(added), 'change')} accepted; commit it. Their history starts anew at the merge."
        )
