"""What could not be measured, and whether the verdict can stand without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from agent_eval_action.config.models import Withheld
from agent_eval_action.gate.broken_code import NOTHING_BROKEN, BrokenCode, broken_findings
from agent_eval_action.gate.compare import TOLERANCE, ComparedPair
from agent_eval_action.gate.rules import Rule
from agent_eval_action.gate.sentences import Writer
from agent_eval_action.gate.wording import SENTENCE, clip, count, listed
from agent_eval_action.results.decision import Finding
from agent_eval_action.results.run_result import AttemptSummary, CaseKey, CaseResult, ErrorKind, RunResult, RunStatus

Effect = Literal["inconclusive", "advisory"]
_NAMED: Final = 5
_ENDED: Final = {
    RunStatus.TIMED_OUT: "the run reached its max_time",
    RunStatus.INTERRUPTED: "the run was interrupted",
    RunStatus.LIMITED: "the run met a limit",
}


def error_findings(
    rules: Sequence[Rule], result: RunResult, writer: Writer, broken: BrokenCode = NOTHING_BROKEN
) -> Iterable[Finding]:
    """One finding per case that gave no answer, one per score that is missing; the end of the run said once.

    Cases that the change's code breaks are said together, and block where any of their criteria decides.
    """
    blocking = {pair.key for rule in rules if rule.gating for pair in rule.one.pairs} & broken.keys
    yield from broken_findings(broken.of(blocking), result)
    cut_short = result.status is not RunStatus.COMPLETE
    if cut_short:
        yield _ended(rules, result)
    unanswered: dict[CaseKey, tuple[ComparedPair, Effect]] = {}
    for rule in rules:
        for pair in rule.one.pairs:
            effect: Effect = "inconclusive" if rule.gating and not pair.added else "advisory"
            measured = pair.measured
            if pair.key in blocking or measured is None or not measured.errors or (cut_short and _only_stopped(pair)):
                continue
            if measured.answered:
                yield _score(pair, effect, writer)
            elif effect == "inconclusive" or pair.key not in unanswered:
                unanswered[pair.key] = (pair, effect)
    for key in sorted(unanswered):
        yield _case(*unanswered[key], writer)


def baseline_findings(rules: Sequence[Rule], unmeasured: Mapping[CaseKey, str], writer: Writer) -> Iterable[Finding]:
    """One finding per reason why main's own scores, which this run was to measure, are not there."""
    counted = {pair.key for rule in rules if rule.gating for pair in rule.one.pairs if not pair.added}
    groups: dict[tuple[str, str], list[CaseKey]] = {}
    for key, why in sorted(unmeasured.items()):
        if key in counted:
            groups.setdefault((key.agent, why), []).append(key)
    for (agent, why), keys in groups.items():
        names = listed((f"`{writer.case(key)}`" for key in keys), _NAMED)
        reason = f"there is nothing to compare with: the base commit's agent did not answer {names}: {why}"
        yield Finding(effect="inconclusive", reason=clip(reason, SENTENCE), agent=agent)


def silence_findings(rules: Sequence[Rule], writer: Writer) -> Iterable[Finding]:
    """One finding per case that the model answers neither here nor on main any more, where main's history has answers.

    An empty answer (no candidate, a safety block) has a score, which is as low on both arms: that looks like a fault
    main has already, and is trouble of the model or of its service.
    """
    worse: dict[CaseKey, ComparedPair] = {}
    for rule in rules:
        for pair in rule.one.pairs if rule.gating else ():
            fell = pair.change is not None and (pair.change if pair.goal == "minimize" else -pair.change) > TOLERANCE
            if fell and pair.measured is not None and pair.measured.case.control:
                worse.setdefault(pair.key, pair)
    for key, pair in sorted(worse.items()):
        case = pair.measured.case if pair.measured else None
        if case is None or not (_mostly_silent(case, case.attempts) and _mostly_silent(case, case.control)):
            continue
        here, there = (count(len(attempts), "attempt") for attempts in (case.attempts, case.control))
        reason = (
            f"`{writer.case(key)}`: the model answers nothing, neither here ({here}) nor on main ({there}), where "
            "main's history has answers: the model or its service is in trouble; run it again when that is over"
        )
        yield Finding(effect="inconclusive", reason=clip(reason, SENTENCE), **key._asdict())


def _mostly_silent(case: CaseResult, attempts: Sequence[AttemptSummary]) -> bool:
    answered = [attempt for attempt in attempts if attempt.error is None]
    return bool(answered) and 2 * sum(_silent(case, attempt) for attempt in answered) > len(answered)


def _silent(case: CaseResult, attempt: AttemptSummary) -> bool:
    """Whether the model was asked, and gave nothing in some turn, or no text where one is expected.

    An event without content is no recorded event, so that the model's time says that it was asked.
    """
    due = [bool(turn.response) for turn in case.expected] + [False] * len(attempt.turns)
    empty = (not turn.response and (text or not turn.calls) for turn, text in zip(attempt.turns, due, strict=False))
    asked = attempt.usage.model_calls > 0 or (attempt.durations.model or 0.0) > 0
    return asked and any(empty)


def withheld_findings(rules: Sequence[Rule], result: RunResult, withheld: Withheld) -> tuple[Finding, ...]:
    """What was left out for want of credentials, in one sentence.

    ``withheld``: what that means where GitHub gave the run no secrets. What was measured can pass, but a run in which
    nothing that counts was measured never does.
    """
    left = [(rule, [pair for pair in rule.one.pairs if pair.measured and pair.measured.unmeasured]) for rule in rules]
    left = [(rule, pairs) for rule, pairs in left if pairs]
    gating = [(rule, pairs) for rule, pairs in left if rule.gating]
    if not left:
        return ()
    effect: Literal["blocks", "inconclusive", "advisory"] = "inconclusive" if gating else "advisory"
    if gating and result.conditions.withheld:
        measured = any(pair.current is not None for rule in rules if rule.gating for pair in rule.one.pairs)
        if withheld == "fail":
            effect = "blocks"
        elif withheld == "pass" and measured:
            effect = "advisory"
    shown = gating or left
    first = next((pair.measured.unmeasured for _, pairs in shown for pair in pairs if pair.measured), "")
    why = result.conditions.withheld or clip("; ".join(result.conditions.lacking), SENTENCE // 2)
    names = listed((_left_out(rule, pairs) for rule, pairs in shown), _NAMED)
    reason = f"{clip(first, SENTENCE // 2)}: {names}{f' ({why})' if why else ''}"
    return (Finding(effect=effect, reason=clip(reason, SENTENCE)),)


def _left_out(rule: Rule, pairs: Sequence[ComparedPair]) -> str:
    of = f" in {len(pairs):,} of {count(len(rule.one.pairs), 'case')}" if len(pairs) < len(rule.one.pairs) else ""
    return f"`{clip(rule.one.criterion, 60)}`{of}"


def nothing_measured(rules: Sequence[Rule]) -> Finding | None:
    """A run in which nothing that could block has a score says nothing."""
    judged = [rule for rule in rules if rule.gating] or list(rules)
    pairs = [pair for rule in judged for pair in rule.one.pairs]
    if any(pair.current is not None or (pair.measured and pair.measured.unmeasured) for pair in pairs):
        return None
    what = ", ".join(f"`{clip(rule.one.criterion, 60)}`" for rule in judged[:5])
    reason = f"nothing was measured: no case has a score on {what}" if judged else "nothing was measured: no case ran"
    return Finding(effect="inconclusive", reason=reason)


def _ended(rules: Sequence[Rule], result: RunResult) -> Finding:
    cases = {pair.key for rule in rules for pair in rule.one.pairs}
    missing = {pair.key for rule in rules for pair in rule.one.pairs if pair.measured and pair.measured.errors}
    ended = result.cut_short or _ENDED[result.status]
    if not missing:  # every case was run once: it ended what was run again, or the control
        return Finding(effect="inconclusive", reason=f"{ended} before everything was decided")
    text = f"{ended} before everything was measured"
    return Finding(
        effect="inconclusive", reason=f"{text}: {count(len(missing), 'case')} of {len(cases):,} not complete"
    )


def _only_stopped(pair: ComparedPair) -> bool:
    attempts = pair.measured.case.attempts if pair.measured else ()
    kinds = {attempt.error.kind for attempt in attempts if attempt.error is not None}
    return kinds == {ErrorKind.STOPPED}


def _case(pair: ComparedPair, effect: Effect, writer: Writer) -> Finding:
    attempts = pair.measured.case.attempts if pair.measured else ()
    failed = sum(attempt.error is not None for attempt in attempts)
    share = f" in {failed} of {len(attempts)} attempts" if len(attempts) > 1 else ""
    error = pair.measured.error if pair.measured else ""
    reason = clip(f"`{writer.case(pair.key)}` could not be measured{share}: {clip(error, SENTENCE // 2)}", SENTENCE)
    return Finding(effect=effect, reason=reason, **pair.key._asdict())


def _score(pair: ComparedPair, effect: Effect, writer: Writer) -> Finding:
    measured = pair.measured
    errors, attempts = (measured.errors, len(measured.case.attempts)) if measured else (0, 0)
    share = f" in {errors} of {attempts} attempts" if attempts > 1 else ""
    name = f"`{writer.case(pair.key)} › {clip(pair.criterion, 60)}`"
    error = clip(measured.error, SENTENCE // 2) if measured else ""
    reason = clip(f"{name} has no score{share}: {error}", SENTENCE)
    return Finding(effect=effect, reason=reason, criterion=pair.criterion, **pair.key._asdict())
