"""``agent-eval accept``: writes intended changes of the agent into .agent-eval/accept.yaml."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_eval_action.api.evaluation import discover_eval_files, names_of
from agent_eval_action.baseline import accepted
from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.cli.console import print_line
from agent_eval_action.cli.last_run import read_last_run
from agent_eval_action.cli.session import settings_for
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import did_you_mean, plural
from agent_eval_action.errors import UsageError
from agent_eval_action.folders import relative
from agent_eval_action.gate.verdict import worse_pairs
from agent_eval_action.reports import ReportInput
from agent_eval_action.reports.next_steps import next_steps
from agent_eval_action.reports.prose import listed
from agent_eval_action.run.loader import Loader

_NAMES_SHOWN = 8


def accept_named(named: Mapping[str, Sequence[str]], reason: str, config: str | None) -> None:
    """Accept the cases that are named. ``named``: values of ``case``, ``criterion``, ``agent`` and ``eval_set``.

    Raises UsageError for a name that the suite, as its files have it, does not have.
    """
    settings = settings_for({"config": config}).settings
    names = names_of(Loader(settings.workspace).plan(discover_eval_files(settings), 1))
    for word, values in named.items():
        known = getattr(names, word)
        for value in values:
            if value not in known:
                hint = did_you_mean(value, known) or f"known: {listed(sorted(known)[:_NAMES_SHOWN], len(known))}"
                raise UsageError(f"there is no {word.replace('_', ' ')} {value!r}", hint=hint)
    if not named["case"]:
        raise UsageError("no case is named", hint="agent-eval accept CASE …, or --worse for all that got worse")
    where = {word: named[word][0] for word in ("agent", "eval_set") if named[word]}
    criteria = [{"criterion": name} for name in named["criterion"]] or [{}]
    cases = named["case"]
    _append(settings, [{"case": case, **one, **where, "reason": reason} for one in criteria for case in cases])


def accept_worse(reason: str, results: Path | None, config: str | None) -> None:
    """Accept every pair that got worse in a finished run, by default the last one."""
    settings = settings_for({"config": config}).settings
    result = read_last_run(settings, results)
    times = Counter(case.case for owner in result.sets for case in owner.cases)
    entries = [
        {
            "case": pair.case,
            "criterion": pair.criterion,
            # only where another case has the same name
            **({"agent": pair.agent, "eval_set": pair.eval_set} if times[pair.case] > 1 else {}),
            "reason": reason,
        }
        for pair in worse_pairs(ReportInput(result).decision)
    ]
    if entries:
        _append(settings, entries)
    else:
        print_line("nothing got worse in that run, so there is nothing to accept")
    for step in next_steps(result):
        if step.places:
            print_line(str(step.text))
            for place in step.places:
                print_line(f"  {place}")


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
