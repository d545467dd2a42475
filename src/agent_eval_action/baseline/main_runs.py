"""Main's past run by run: means, cost, what changed since the run before, and the outcome of each case."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.results.decision import MainCase, MainEvent, MainRun
from agent_eval_action.results.history import CaseRecord, Definition, Record, RunCost, rounded
from agent_eval_action.results.run_result import CaseKey

_SHOWN: Final = 3
_EVENTS: Final = 20
_UNKNOWN: Final = "the criterion's options changed since the baseline"
_JUDGE: Final = ("judge_model", "judge_model_options.judge_model", "judge")
_PROMPT: Final = ("prompt_version", "judge_prompt")
_LAST: Final = ("scoring version", "goal")

Cases = Mapping[CaseKey, CaseRecord]


def main_runs(records: Sequence[Record], cases: Sequence[Cases]) -> Iterator[MainRun]:
    """Each run of main, oldest first. ``records`` are newest first, ``cases`` are theirs by the names of now."""
    runs = list(zip(records, cases, strict=True))[::-1]
    for before, (record, own) in zip([None, *runs], runs, strict=False):
        events = () if before is None else tuple(_events(*before, record, own))[:_EVENTS]
        cost = record.cost or RunCost()
        yield MainRun(
            commit=record.commit,
            created_at=record.created_at,
            models=tuple(sorted({model for agent in record.agents for model in agent.models})),
            means=_means(record.cases),
            cases=len(record.cases),
            passed=sum(_outcome(case) == "p" for case in record.cases),
            tokens=cost.tokens,
            seconds=cost.seconds,
            usd=cost.usd,
            events=events,
        )


def main_cases(cases: Sequence[Cases]) -> Iterator[MainCase]:
    """Every case that one of the runs, newest first, has."""
    for key in sorted(set().union(*cases)):
        found = (own.get(key) for own in reversed(cases))
        yield MainCase(**key._asdict(), outcomes="".join(_outcome(case) if case else "-" for case in found))


def _means(cases: Iterable[CaseRecord]) -> dict[str, float]:
    scores: defaultdict[str, list[float]] = defaultdict(list)
    for case in cases:
        for name, one in case.criteria.items():
            scores[name].append(one.average)
    return {name: rounded(statistics.fmean(averages)) for name, averages in sorted(scores.items())}


def _outcome(case: CaseRecord) -> str:
    """A letter of ``MainCase``: whether its attempts met all thresholds of that time."""
    judged = [(one.passed, one.n) for one in case.criteria.values() if one.passed is not None]
    if all(passed == attempts for passed, attempts in judged):
        return "p"
    return "m" if any(passed for passed, attempts in judged if passed < attempts) else "f"


def _events(before: Record, earlier: Cases, record: Record, own: Cases) -> Iterator[MainEvent]:
    """What changed between two runs, one after the other: agents, criteria, cases, what was accepted."""
    old_agents = {agent.agent: agent for agent in before.agents}
    for agent in record.agents:
        if (old := old_agents.get(agent.agent)) is None:
            continue
        if old.models != agent.models:
            models = (", ".join(models[:_SHOWN]) for models in (old.models, agent.models))
            yield MainEvent(kind="model", subject=agent.agent, text=" → ".join(map(_named, models)))
        if old.adk_version != agent.adk_version:
            versions = f"{_named(old.adk_version)} → {_named(agent.adk_version)}"
            yield MainEvent(kind="adk", subject=agent.agent, text=versions)
    was, now = _definitions(before, earlier), _definitions(record, own)
    for name in sorted(was.keys() & now.keys()):
        if was[name] != now[name]:
            change = definition_change(was[name], now[name])
            yield MainEvent(kind="judge" if change.startswith("judge") else "criterion", subject=name, text=change)
    if edited := sorted(key.case for key in earlier.keys() & own.keys() if earlier[key].digest != own[key].digest):
        yield MainEvent(kind="cases", text=", ".join(edited[:_SHOWN]), cases=len(edited))
    known = {entry.id for entry in before.accepted}
    for entry in record.accepted:
        if entry.id not in known:
            yield MainEvent(kind="accepted", subject=entry.case, text=entry.reason[:200])


def _named(value: str) -> str:
    return value or "unknown"


def _definitions(record: Record, cases: Cases) -> dict[str, Definition]:
    """Each criterion as it was; one that eval sets define in several ways is left out."""
    digests: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases.values():
        for name, scores in case.criteria.items():
            digests[name].add(scores.digest)
    single = {name: next(iter(found)) for name, found in digests.items() if len(found) == 1}
    return {name: record.criteria[digest] for name, digest in single.items() if digest in record.criteria}


def definition_change(old: Definition | None, new: Definition | None) -> str:
    """``judge gemini-2.5-flash → gemini-3-flash``; a plain sentence where the old definition is not kept."""
    if old is None or new is None:
        return _UNKNOWN
    before, after = _facts(old), _facts(new)
    parts = []
    for name in sorted(before.keys() | after.keys(), key=lambda name: (name != "judge", name in _LAST, name)):
        then, now = before.get(name), after.get(name)
        if then != now:
            shown = f"{_value(then)} → {_value(now)}"
            parts.append(f"{name} {shown}" if _value(then) != _value(now) else f"{name} changed")
    more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return ", ".join(parts[:_SHOWN]) + more if parts else _UNKNOWN


def _facts(definition: Definition) -> dict[str, Any]:
    """What a criterion was, by the names that people know; options inside others by their path."""
    facts: dict[str, Any] = {"judge": definition.judge or None}
    for name, value in _flat(definition.options):
        facts["judge" if name in _JUDGE else "judge prompt" if name.rpartition(".")[2] in _PROMPT else name] = value
    return facts | {"scoring version": definition.scoring_version, "goal": definition.goal}


def _flat(options: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _value(value: Any) -> str:
    return "none" if value is None else value[:60] if isinstance(value, str) else shorten(value, 60)
