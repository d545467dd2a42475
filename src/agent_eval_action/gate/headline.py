"""The verdict in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from agent_eval_action.gate.assess import Status
from agent_eval_action.gate.compare import NO_CASE, ComparedPair, Comparison
from agent_eval_action.gate.rules import MOST, Rule
from agent_eval_action.gate.sentences import Writer
from agent_eval_action.gate.wording import BEGIN, SENTENCE, clip, count, listed
from agent_eval_action.results.decision import ChangeKind, Finding, Verdict
from agent_eval_action.results.run_result import CaseKey

_NAMED: Final = 3


def headline(
    outcome: Verdict,
    comparison: Comparison,
    rules: Sequence[Rule],
    findings: Sequence[Finding],
    writer: Writer,
    *,
    left_out: Sequence[Finding] = (),
) -> str:
    """Why the outcome is what it is. ``left_out``: the findings about what lacked credentials, said of a pass too."""
    if outcome is Verdict.FAIL:
        text = "; ".join([*_failures(rules, findings, writer), *_unmeasured(findings)])
    elif outcome is Verdict.INCONCLUSIVE:
        text = f"could not tell: {'; '.join([*_unmeasured(findings), *_of_the_rest(comparison, rules, findings)])}"
    elif outcome is Verdict.COLLECTING:
        text = _collecting(comparison, rules, findings)
    else:
        text = "; ".join([_passed(comparison, rules, findings), *(finding.reason for finding in left_out)])
    return clip(text, SENTENCE)


def _failures(rules: Sequence[Rule], findings: Sequence[Finding], writer: Writer) -> Iterable[str]:
    blocking = [(rule, pair) for rule in rules for pair in rule.one.pairs if rule.blocks(pair)]
    total = len(_cases(rules))
    fell = {ChangeKind.NEWLY_FAILING, ChangeKind.WORSE}
    worse = {pair.key for rule, pair in blocking if pair.kind in fell or rule.weighed.status(pair) is Status.CONFIRMED}
    still = {pair.key for _, pair in blocking if pair.kind is ChangeKind.STILL_FAILING} - worse
    alone = {pair.key for _, pair in blocking} - worse - still  # by its threshold, whatever became of it otherwise
    if worse:
        yield f"{len(worse):,} of {count(total, 'case')} got worse: {_names(worse, writer)}"
    if alone:
        verb = "misses" if len(alone) == 1 else "miss"
        yield f"{len(alone):,} of {count(total, 'case')} {verb} a threshold: {_names(alone, writer)}"
    if still:
        verb = "misses" if len(still) == 1 else "miss"
        yield f"{len(still):,} of {count(total, 'case')} {verb} a threshold as in the baseline: {_names(still, writer)}"
    for finding in findings:
        if finding.effect == "blocks" and finding.case is None:
            # which cases moved it is said already, where they are named as worse
            yield finding.reason.partition(MOST)[0] if worse else finding.reason


def _unmeasured(findings: Sequence[Finding]) -> Iterable[str]:
    missing = [finding for finding in findings if finding.effect == "inconclusive"]
    yield from (finding.reason for finding in missing if finding.case is None)
    cases = {
        (finding.agent, finding.eval_set, finding.case): finding for finding in missing if finding.case is not None
    }
    if len(cases) == 1:
        yield next(iter(cases.values())).reason
    elif cases:
        first = next(iter(cases.values())).reason
        yield f"{count(len(cases), 'case')} could not be decided, the first: {first}"


def _of_the_rest(comparison: Comparison, rules: Sequence[Rule], findings: Sequence[Finding]) -> Iterable[str]:
    """Where something was left out, and nothing else is in doubt: what the rest says."""
    pairs = [pair for rule in rules for pair in rule.one.pairs]
    left_out = any(pair.measured is not None and pair.measured.unmeasured for pair in pairs)
    doubts = sum(finding.effect == "inconclusive" for finding in findings)
    if left_out and doubts == 1 and any(pair.current is not None for pair in pairs):
        yield f"of the rest {_passed(comparison, rules, findings)}"


def _collecting(comparison: Comparison, rules: Sequence[Rule], findings: Sequence[Finding]) -> str:
    missed = len({(f.agent, f.eval_set, f.case) for f in findings if f.effect == "advisory" and f.case is not None})
    below = f", {missed} below ADK's default thresholds" if missed else ""
    return (
        f"{_measured(rules)} measured{below}; there is no baseline and no threshold of your own to hold "
        f"them to: {BEGIN[comparison.store]}, or set thresholds in test_config.json"
    )


def _passed(comparison: Comparison, rules: Sequence[Rule], findings: Sequence[Finding]) -> str:
    advisory = sum(finding.effect == "advisory" for finding in findings)
    tail = f"; {count(advisory, 'advisory finding')}" if advisory else ""
    if comparison.baseline is None:
        return f"every threshold that counts is met by {_measured(rules)}; no baseline to compare with{tail}"
    compared = sum(rule.one.compared for rule in rules)
    scores = sum(pair.current is not None for rule in rules for pair in rule.one.pairs)
    better = "".join(_better(rules))
    gone = len({pair.key for pair in comparison.removed if pair.incomparable == NO_CASE})
    removed = f"; {count(gone, 'case')} of the baseline gone" if gone else ""
    share = "all" if compared == scores else f"{compared:,} of {scores:,}"
    told = f"{_measured(rules)}, {share} scores compared with the baseline"
    return f"nothing got worse than allowed: {told}{removed}{better}{tail}"


def _better(rules: Sequence[Rule]) -> Iterable[str]:
    """What is better than main beyond chance."""
    improved = [pair for rule in rules for pair in rule.one.pairs if rule.weighed.improved(pair)]
    fixed = len(_keys(improved, ChangeKind.FIXED))
    if fixed:
        yield f"; {count(fixed, 'case')} fixed"
    for rule in rules:
        found = rule.weighed.better.get(rule.one.criterion)
        if found is not None and found.mean is not None:
            yield f"; `{clip(rule.one.criterion, 80)}` is better on average (p = {found.p:.2g})"


def _measured(rules: Sequence[Rule]) -> str:
    criteria = sum(any(pair.current is not None for pair in rule.one.pairs) for rule in rules)
    return f"{count(len(_cases(rules)), 'case')} on {criteria} criteri{'on' if criteria == 1 else 'a'}"


def _cases(rules: Sequence[Rule]) -> set[CaseKey]:
    """Those that were run: one this run left out was not measured on anything."""
    pairs = (pair for rule in rules for pair in rule.one.pairs)
    return {pair.key for pair in pairs if not (pair.measured and pair.measured.unmeasured)}


def _keys(pairs: Iterable[ComparedPair], kind: ChangeKind) -> set[CaseKey]:
    return {pair.key for pair in pairs if pair.kind is kind}


def _names(keys: Iterable[CaseKey], writer: Writer) -> str:
    return listed((f"`{writer.case(key)}`" for key in sorted(keys)), _NAMED)
