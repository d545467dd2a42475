"""What differs between the conditions of a baseline and of a run, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent_eval_action.gate.wording import clip, count, listed
from agent_eval_action.results.history import Baseline, History, kept_digest, kept_key
from agent_eval_action.results.run_result import CaseKey, RunResult

_LISTED: Final = 5


def condition_notes(baseline: Baseline, result: RunResult) -> tuple[str, ...]:
    """What differs between the conditions of both sides: shown, never a reason not to compare."""
    then = {agent.agent: agent for agent in baseline.agents}
    notes: list[str] = []
    for now in result.conditions.agents:
        old = then.get(now.agent)
        if old is None:
            continue
        name = clip(now.agent, 80)
        if old.models and now.models and set(old.models) != set(now.models):
            notes.append(f"agent {name}: model {_models(old.models)} → {_models(now.models)} since the baseline")
        if old.adk_version and now.adk_version and old.adk_version != now.adk_version:
            notes.append(f"agent {name}: google-adk {clip(old.adk_version, 40)} → {clip(now.adk_version, 40)}")
        if old.packages_digest and now.packages_digest and old.packages_digest != kept_digest(now.packages_digest):
            notes.append(f"agent {name}: its installed packages are not those of the baseline")
    return (*notes, *_not_run(baseline, result))


def anew_notes(history: History | None) -> tuple[str, ...]:
    """Accepted changes from whose merge on the scores of a pair count, by their reasons."""
    by_reason: dict[str, list[str]] = {}
    for (key, criterion), pair in sorted(history.pairs.items()) if history else ():
        if pair.anew and pair.scores:
            by_reason.setdefault(pair.anew, []).append(f"`{clip(key.case, 60)} › {clip(criterion, 60)}`")
    return tuple(
        f"compared with main since its change was accepted ({clip(reason, 200)}): {listed(names, _LISTED)}"
        for reason, names in by_reason.items()
    )


def _not_run(baseline: Baseline, result: RunResult) -> tuple[str, ...]:
    ran = {kept_key(CaseKey(one.agent, one.eval_set, case.case)) for one in result.sets for case in one.cases}
    covers = result.conditions.covers
    left = sum(record.key not in ran and not covers(record.agent) for record in baseline.records)
    if not left:
        return ()
    chosen = clip(", ".join((*result.conditions.only_agents, *result.conditions.selection)), 120)
    verb = "was" if left == 1 else "were"
    return (f"{count(left, 'case')} of the baseline {verb} not run: the run was narrowed to {chosen}",)


def _models(models: Sequence[str]) -> str:
    return listed((clip(model, 60) for model in models), _LISTED)
