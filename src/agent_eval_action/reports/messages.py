"""Turns findings into sentences. Every report uses the same sentences, with its own escaping."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_eval_action.baseline import STORES
from agent_eval_action.errors import ResultsError
from agent_eval_action.reports.change_messages import CHANGE_WRITERS, LONG_NAME, criterion_source
from agent_eval_action.reports.formatting import (
    Name,
    Prose,
    compose,
    joined,
    listed,
    names,
    number,
    numbers,
    pairs,
    plural,
    verb,
)
from agent_eval_action.results.base import StoreKind
from agent_eval_action.results.decision import ChangeKind, Decision, MainEvent, PairChange, Verdict
from agent_eval_action.results.findings import Finding, FindingCode, Reason, Subject

Data = Mapping[str, Any]

BEGIN: Final[Mapping[StoreKind, Prose]] = {kind: Prose.marked(store.begin) for kind, store in STORES.items()}
"""How to make a baseline, by kind of store."""

KIND_LABELS: Final[dict[ChangeKind, str]] = {
    ChangeKind.SAME: "unchanged",
    ChangeKind.BETTER: "better",
    ChangeKind.WORSE: "worse",
    ChangeKind.NEWLY_FAILING: "newly failing",
    ChangeKind.FIXED: "fixed",
    ChangeKind.STILL_FAILING: "still failing",
    ChangeKind.FAILING: "failing",
    ChangeKind.PASSING: "passing",
    ChangeKind.NEW: "new",
    ChangeKind.REMOVED: "removed",
    ChangeKind.CHANGED: "changed definition",
    ChangeKind.ERROR: "error",
    ChangeKind.NOT_APPLICABLE: "not applicable",
    ChangeKind.FLAKY: "flaky",
    ChangeKind.ON_MAIN: "already broken on main",
}
OUTCOME_LABELS: Final[dict[Verdict, str]] = {
    Verdict.PASS: "Passed",
    Verdict.FAIL: "Blocked",
    Verdict.INCONCLUSIVE: "Inconclusive",
    Verdict.COLLECTING: "Collecting",
}
GROUP_LABELS: Final[Mapping[str, str]] = {
    "regressed": "regressed",
    "needs_runs": "needs more runs",
    "not_measured": "not measured",
    "below_threshold": "below threshold",
    "worse": "worse, not blocking",
    "flaky": "flaky",
    "broken_on_main": "already broken on main",
    "quarantined": "quarantined",
    "new": "new",
    "changed": "changed definition",
    "removed": "removed",
    "better": "better",
    "unchanged": "unchanged",
}
"""Labels of the classes of cases (``view.Group``)."""

_CASES_IN_HEADLINE: Final = 3
_CASE, _CRITERION = 100, 60


@dataclass(frozen=True)
class Messages:
    """The sentences of one decision. ``ambiguous``: names shared by several of its cases."""

    ambiguous: frozenset[str] = frozenset()

    @classmethod
    def for_decision(cls, decision: Decision) -> Messages:
        """Return the sentences of a decision; they name agent and eval set if the case's name is ambiguous."""
        times = Counter(key.case for key in {pair.key for pair in decision.pairs})
        return cls(frozenset(case for case, seen in times.items() if seen > 1))

    def sentence(self, finding: Finding) -> Prose:
        """Return a finding's sentence, which begins with its subject."""
        return self._write(finding, _WRITERS[finding.code], self._subject(finding.subject), finding.subject)

    def heading(self, finding: Finding) -> Prose:
        """Return a reason of the outcome in a few words."""
        writer = _HEADINGS.get(finding.code, _WRITERS[finding.code])
        return self._write(finding, writer, self._subject(finding.subject), finding.subject)

    def pair(self, pair: PairChange, *, with_case: bool = True) -> Prose:
        """Describe a pair's result; empty if there is nothing to say."""
        if pair.reason is None:
            return Prose()
        name = self._subject(pair.subject) if with_case else Prose.join(Name.shortened(pair.criterion, _CRITERION))
        return self._write(pair.reason, _WRITERS[pair.reason.code], name, pair.subject)

    def headline(self, decision: Decision) -> Prose:
        """Explain the outcome in one sentence."""
        clauses: list[Prose] = []
        first_of_several = False
        for finding in decision.reasons:
            text = self.sentence(finding)
            if first_of_several:
                clauses[-1] = joined([clauses[-1], text], ": ")
            else:
                clauses.append(text)
            first_of_several = finding.code in {FindingCode.CASES_UNDECIDED, FindingCode.GATE_WEAKENED}
        measured = any(finding.code is not FindingCode.TEXT for finding in decision.reasons)
        lead = "could not tell: " if decision.outcome is Verdict.INCONCLUSIVE and measured else ""
        return joined([lead, joined(clauses, "; ")], "")

    def case(self, reference: Data) -> Name:
        """Return a case's name, with agent and eval set if another case has the same name."""
        parts = (reference["agent"], reference["eval_set"], reference["case"])
        shown = parts if parts[2] in self.ambiguous else parts[2:]
        return Name(" / ".join(Name.shortened(part, _CASE) for part in shown))

    def cases(self, data: Data) -> Prose:
        """Return the cases that a finding names, and how many more there are."""
        return listed([self.case(one) for one in data["named"]], data["cases"])

    def _subject(self, subject: Subject) -> Prose:
        if subject.case is None:
            return Prose.join(Name.shortened(subject.criterion or subject.agent or "", 80))
        case = self.case({"agent": subject.agent, "eval_set": subject.eval_set, "case": subject.case})
        criterion = f" › {Name.shortened(subject.criterion, _CRITERION)}" if subject.criterion is not None else ""
        return Prose.join(Name(f"{case}{criterion}"))

    def _write(self, reason: Reason, writer: _Writer, name: Prose, subject: Subject) -> Prose:
        try:
            fields = Fields(reason.data, name, subject, self)
            return fields.fill(writer) if isinstance(writer, str) else writer(fields)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"the finding {reason.code.value} does not have the values it needs ({error!r:.80})"
            raise ResultsError(f"these results cannot be shown: {problem}") from error


@dataclass(frozen=True, slots=True)
class Fields:
    """A finding's values by name, and parts of sentences that several codes share."""

    data: Data
    name: Prose
    subject: Subject
    messages: Messages

    def __getitem__(self, value: str) -> Any:
        return self.data[value]

    def get(self, value: str, default: Any = None) -> Any:
        """Return an optional value of the finding."""
        return self.data.get(value, default)

    def fill(self, template: str, **parts: Prose | str) -> Prose:
        """Fill a template: its fields are the given ``parts``, shared parts, or values in the field's format.

        ``{drop:number}`` is a score, ``{path:code}`` a name, ``{p:.2g}`` a number in that format, ``{cases:case}`` a
        count of that noun.
        """
        found: list[Prose | str] = []
        for text, field, form, _ in string.Formatter().parse(template):
            found.append(text)
            if field is not None:
                found.append(parts[field] if field in parts else self._field(field, form or ""))
        return joined(found, "")

    def _field(self, field: str, form: str) -> Prose | str:
        if field in _PARTS:
            return _PARTS[field](self)
        value = self.data[field]
        if form == "number":
            return number(value)
        if form == "code":
            return Name.shortened(value, LONG_NAME)
        return format(value, form) if form.startswith(".") or not form else plural(value, form)


_Writer = str | Callable[[Fields], Prose]


def run_findings(decision: Decision) -> list[Finding]:
    """Return findings about the run or a criterion that are neither reasons of the verdict nor weakenings."""
    known = {finding.topic for finding in (*decision.reasons, *decision.weakenings)}
    return [finding for finding in decision.findings if finding.subject.case is None and finding.topic not in known]


# --- a case on a criterion -------------------------------------------------------------------------


def _evidence(after: str) -> Callable[[Fields], Prose]:
    def write(f: Fields) -> Prose:
        main, here, control = f["main"], f["here"], f.get("control")
        where = "here" if f["rerun"] else "in the first pass here"
        if f["binary"]:
            words = f" passed {_times(main)} times on main and {_times(here)} {where}"
            beside = f"; the base commit's agent passed {_times(control)} just now" if control else ""
        else:
            then, now = numbers(main["mean"], here["mean"])
            words = f" was {then} over {plural(main['n'], 'run')} of main and {now} over {here['n']} {where}"
            beside = f"; the base commit's agent had {number(control['mean'])} just now" if control else ""
        limit = f"; {f['limit']}" if f.get("limit") else ""
        return joined([f.name, words, beside, after, _explained(f), limit], "")

    return write


def _times(scores: Data) -> str:
    return f"{scores['passed']} of {scores['n']}"


def _explained(f: Fields) -> str:
    """Return the criterion's explanation of the worst attempt, and the tool call that differs from the baseline."""
    changed = f"tool calls changed: {_calls(f['calls'])}" if f.get("calls") else ""
    parts = [part for part in (f.get("judgement"), changed) if part]
    return f": {'; '.join(parts)}" if parts else ""


def _calls(data: Data) -> str:
    change, old, new = data["change"], data.get("old", ""), data.get("new", "")
    if change == "turns":
        return f"{plural(old, 'turn')} in the baseline, {new} now"
    if change == "unknown":
        return f"after turn {old}, where the baseline has only a digest"
    what = {
        "added": f"{new} is new",
        "removed": f"{old} is no longer called",
        "moved": f"{old} is called at another place",
        "arguments": f"{old} with other arguments",
        "replaced": f"{old} → {new}",
    }[change]
    return f"turn {data['turn']} {what}"


def _repeats(f: Fields) -> str:
    parts = []
    if f["n"] > 1:
        met = "" if f.get("passed") is None else f", {f['passed']} met it"
        parts.append(f"mean of {f['n']} attempts{met}")
    if f.get("errors"):
        parts.append(f"{f['errors']} of {f['attempts']} attempts without a score")
    return f" ({'; '.join(parts)})" if parts else ""


def _why(f: Fields) -> str:
    """Say why a pair cannot be compared; the history may give a more specific reason than the code."""
    text = f.get("text", "")
    return text if text and f["why"] in {"case_edited", "history"} else _INCOMPARABLE[f["why"]].format(text=text)


_INCOMPARABLE: Final[Mapping[str, str]] = {
    "no_baseline": "there is no baseline",
    "case_new": "the case is new",
    "case_gone": "the case is gone",
    "case_edited": "the case was edited since the baseline",
    "criterion_new": "the criterion is new for this case",
    "criterion_gone": "the criterion is no longer configured",
    "criterion_changed": "the criterion's options changed since the baseline",
    "not_kept": "the baseline had no room for it",
    "base_not_measured": "the base commit's agent could not be measured",
    "accepted": "its change was accepted ({text})",
    "history": "main's scores of it do not count",
}


def _below_threshold(f: Fields) -> Prose:
    score, threshold = numbers(f["score"], f["threshold"])
    before = [] if f["baseline"] is None else [f"baseline {number(f['baseline'])}"]
    if f["why"]:
        before.append(f"not comparable: {_why(f)}" if before else _why(f))
    accepted = "; accepting lifts the comparison, not the threshold" if f["why"] == "accepted" else ""
    template = "{name} is {score}{repeats}, {side} its threshold {threshold} ({known}){accepted}{explained}"
    known = ", ".join(before) or "no baseline"
    return f.fill(template, score=score, threshold=threshold, known=known, accepted=accepted)


def _score_changed(f: Fields) -> Prose:
    before, after = numbers(f["baseline"], f["score"])
    rose = "rose" if f["score"] > f["baseline"] else "fell"
    fixed = ", and meets its threshold again" if f["fixed"] else ""
    return f.fill(f"{{name}} {rose} from {before} to {after}{{repeats}}{fixed}{{explained}}")


# --- a criterion over its cases --------------------------------------------------------------------


def _mean_misses_threshold(f: Fields) -> Prose:
    score, threshold = numbers(f["score"], f["threshold"])
    template = "{name} is {score} on average over {cases:case}, {side} its suite threshold {threshold}"
    return f.fill(template, score=score, threshold=threshold)


def _mean_beyond_limit(f: Fields) -> Prose:
    then, now = numbers(f["baseline"], f["score"])
    drop = f["goal"] == "maximize"
    allowed = number(f["limit"]) if drop else f"{f['limit'] * 100:g} %"
    worst = [
        joined([f.messages.case(one), " ({} → {})".format(*numbers(one["baseline"], one["score"]))], "")
        for one in f["worst"]
    ]
    most = joined(["; most of it: ", listed(worst, f["worse"])], "") if worst else ""
    template = "{name} {moved} from {then} to {now} over {cases:case}; at most {allowed} is allowed{most}{doubt}"
    return f.fill(template, then=then, now=now, allowed=allowed, most=most)


_DOUBTS: Final = {
    "": "",
    "too_few_runs": "; too few runs to tell it from chance",
    "chance": "; this may be chance",
    "above_level": "; this is not certain enough to block",
    "not_controlled": "; the base commit's agent was not run for comparison",
    "control_as_low": "; the base commit's agent, run just now, is as low",
    "not_confirmed": ": not confirmed, the base commit's agent was not run for comparison; {limit}",
}
"""Why what got worse does not block."""


# --- what could not be measured --------------------------------------------------------------------


def _credentials_missing(f: Fields) -> Prose:
    found = []
    for one in f["criteria"]:
        part = f" in {one['cases']:,} of {plural(one['of'], 'case')}" if one["cases"] < one["of"] else ""
        found.append(joined([Name.shortened(one["criterion"], _CRITERION), part], ""))
    why = f" ({f['why']})" if f["why"] else ""
    return f.fill("{text}: {criteria}{why}", criteria=listed(found, f["total"]), why=why)


def _nothing_measured(f: Fields) -> Prose:
    if not f["criteria"]:
        return Prose.join("nothing that counts was measured")
    return f.fill("nothing was measured: no case has a score on {names}", names=names(f["criteria"], limit=_CRITERION))


def _run_ended_early(f: Fields) -> Prose:
    if not f["missing"]:  # every case was run once: the run ended during re-runs or the control
        return f.fill("{ended} before everything was decided")
    return f.fill("{ended}: {missing} of {cases:case} {are} not measured", are=verb(f["missing"], "is", "are"))


_ENDED: Final = {
    "timed_out": "time ran out (max_time)",
    "interrupted": "the run was interrupted",
    "limited": "the run met a limit",
    "incomplete": "a part of the run is missing",
}


def _shard(f: Fields) -> Prose:
    """Describe the problem of a shard or a file, and what remains unmeasured."""
    wave = f" of wave {f['wave']}" if f["wave"] > 1 else ""
    which = f"shard {f['number']} of {f['count']}{wave}" if f["number"] else "a shard"
    source, detail = Name.shortened(f["source"], LONG_NAME), f["detail"]
    template = _SHARDS[f["kind"]]
    if f["cases"]:
        template += ": {cases:case} {are} not measured ({case_names})"
    are, why = verb(f["cases"], "is", "are"), f" ({detail})" if detail else ""
    return f.fill(template, which=which, source=source, detail=why, are=are)


_SHARDS: Final = {
    "missing": "{which} left no result that can be used{detail}",
    "unfinished": "{which} did not finish{detail}",
    "unreadable": "{source} cannot be read as results{detail}",
    "no_shard": "{source} is not the result of a shard",
    "other_plan": "{source}, a result of {which}, is of other cases or criteria",
    "other_commit": "{source}, a result of {which}, is of another commit{detail}",
    "other_configuration": "{source}, a result of {which}, was made with another configuration or other files",
    "superseded": "{source}, an older result of {which}, is set aside",
}


def _code_raises(f: Fields) -> Prose:
    named = names([one["case"] for one in f["named"]], f["cases"], 60)
    again, there = (f"{failed} of {plural(made, 'failure')}" for failed, made in (f["again"], f["control"]))
    template = "{names} {fail} with an error of the agent's code: {error} (run again {again}; on {base_commit} {there})"
    return f.fill(template, names=named, fail=verb(f["cases"], "fails", "fail"), again=again, there=there)


# --- the verdict as a whole ------------------------------------------------------------------------


def _cases_of_all(one_form: str, form: str) -> Callable[[Fields], Prose]:
    def write(f: Fields) -> Prose:
        named = listed([f.messages.case(one) for one in f["named"][:_CASES_IN_HEADLINE]], f["cases"])
        words = verb(f["cases"], one_form, form)
        return f.fill("{cases} of {total:case} {words}: {named}", words=words, named=named)

    return write


def _collecting(f: Fields) -> Prose:
    below = f"; {f['below']} below ADK's default thresholds" if f["below"] else ""
    template = "nothing to compare with yet: {measured} measured{below}; {begin}, or set thresholds in test_config.json"
    return f.fill(template, below=below)


def _nothing_worse(f: Fields) -> Prose:
    share = "all" if f["compared"] == f["scores"] else f"{f['compared']:,} of {f['scores']:,}"
    gone = f"; {plural(f['gone'], 'case')} of the baseline gone" if f["gone"] else ""
    fixed = f"; {plural(f['fixed'], 'case')} fixed" if f["fixed"] else ""
    better = [joined(["; ", Name.shortened(one["criterion"], 80), " is better on average"], "") for one in f["better"]]
    template = (
        "{rest}nothing got worse than allowed: {measured}, {share} scores compared with main"
        "{gone}{fixed}{better}{advisories}"
    )
    return f.fill(template, share=share, gone=gone, fixed=fixed, better=joined(better, ""))


def _gate_weakened(f: Fields) -> Prose:
    more = f" (and {plural(f['more'], 'more change')} to what the agent is measured by)" if f["more"] else ""
    return Prose.join(f"this change loosens its own checks, and on_weakened: fail blocks that{more}")


# --- what to know beside the verdict ---------------------------------------------------------------


def _no_control(f: Fields) -> Prose:
    whose = "main's agent" if f.subject.agent is None else joined(["main's agent ", f.name], "")
    return f.fill("{whose} was not run for comparison ({error}), so only main's stored scores count", whose=whose)


def _cases_flaky(f: Fields) -> Prose:
    def rate(one: Data) -> str:
        return f" ({_times(one)})" if one["binary"] else f" ({number(one['mean'])} over {plural(one['n'], 'run')})"

    template = "flaky: {scores:score} worse than on main at first, as on main when run again: {pairs}"
    return f.fill(template, pairs=pairs(f["named"], f["scores"], rate))


def _cases_gone(f: Fields) -> Prose:
    text = f.fill("{named} {are} on main but not in this run", are=verb(f["cases"], "is", "are"))
    below = f["below"]
    return joined([text, "; below a threshold there: ", f.messages.cases(below)], "") if below["cases"] else text


def _cases_not_compared(f: Fields) -> Prose:
    if not f["criteria"]:
        why = _why(f).removeprefix("the case is ").removeprefix("the case was ")
        whose = verb(f["cases"], "its", "their")
        return f.fill("{why}, so only {whose} thresholds apply: {named}", why=why, whose=whose)
    falls = "falls back to its threshold" if len(f["criteria"]) == 1 else "fall back to their thresholds"
    criteria = names(f["criteria"][:5], len(f["criteria"]))
    return f.fill("{why}: {criteria} {falls} in {cases:case}: {named}", criteria=criteria, falls=falls)


_QUARANTINE_STATES: Final = {
    "failing": "it fails here, which does not count",
    "unmeasured": "it could not be measured here, which does not count",
    "passing": "it passes here",
}


def _quarantine(template: str) -> Callable[[Fields], Prose]:
    def write(f: Fields) -> Prose:
        parts = [Name.shortened(name, LONG_NAME) for name in (f["case"], f["criterion"]) if name]
        what: dict[str, Prose | str] = {
            "pair": joined(parts, " › "),
            "state": _QUARANTINE_STATES.get(f.get("state", ""), ""),
        }
        return f.fill(template, **what)

    return write


def _threshold_moved(f: Fields) -> Prose:
    then, now = ("none" if value is None else number(value) for value in (f["old"], f["new"]))
    return f.fill(f"{{name}}: threshold {then} → {now} since the baseline, {{cases:case}}")


def _model_changed(f: Fields) -> Prose:
    old, new = (listed(f[side][:5], len(f[side])) for side in ("old", "new"))
    return f.fill("agent {agent}: model {old} → {new} since the baseline", old=old, new=new)


def main_event(event: MainEvent) -> Prose:
    """Describe in a few words what changed on main with a run."""
    name, case_names = Name.shortened(event.subject, _CRITERION), Name.shortened(event.text, LONG_NAME)
    if event.kind == "cases":
        return compose(f"{plural(event.cases, 'case')} redefined: {{cases}}", cases=case_names)
    lead = {"model": "model of {name}", "adk": "google-adk of {name}", "accepted": "accepted {name}"}
    text = f": {event.text}" if event.text else ""
    return compose(lead.get(event.kind, "{name}") + "{text}", name=name, text=text)


# --- the sentence of each code ---------------------------------------------------------------------

_PARTS: Final[Mapping[str, Callable[[Fields], Prose | str]]] = {
    "name": lambda f: f.name,
    "agent": lambda f: f.name.plain,
    "case": lambda f: Name.shortened(f.subject.case or "", LONG_NAME),
    "named": lambda f: f.messages.cases(f.data),
    "case_names": lambda f: names([one["case"] for one in f["named"]], f["cases"], LONG_NAME),
    "names": lambda f: names(f["criteria"], f["total"], _CRITERION),
    "pairs": lambda f: pairs(f["named"], f["pairs"]),
    "side": lambda f: "above" if f["goal"] == "minimize" else "below",
    "moved": lambda f: "fell" if f["goal"] == "maximize" else "rose",
    "ended": lambda f: f["limit"] or _ENDED[f["status"]],
    "rest": lambda f: "of the rest " if f["rest"] else "",
    "begin": lambda f: BEGIN[f["store"]],
    "merge": lambda f: ", takes effect with the merge" if f.get("with_merge") else "",
    "repeats": _repeats,
    "explained": _explained,
    "why": _why,
    "judgement": lambda f: f": {f['judgement']}" if f["judgement"] else "",
    "share": lambda f: f" in {f['errors']} of {f['attempts']} attempts" if f["attempts"] > 1 else "",
    "doubt": lambda f: _DOUBTS[f.get("doubt", "")].format(limit=f.get("limit_met", "")),
    "base_commit": lambda f: f"the base commit {f['base']}" if f.get("base") else "the base commit",
    "measured": lambda f: f"{plural(f['cases'], 'case')} on {plural(f['criteria'], 'criterion', 'criteria')}",
    "advisories": lambda f: f"; {plural(f['advisories'], 'advisory finding')}" if f["advisories"] else "",
    "source": criterion_source,
    "there_below": lambda f: f", {f['below']} of them below its threshold there" if f["below"] else "",
    "were": lambda f: verb(f["cases"], "was", "were"),
}
"""Fields of templates that several sentences have."""

_HEADINGS: Final[Mapping[FindingCode, _Writer]] = {
    FindingCode.MEAN_BEYOND_LIMIT: "{name} {moved} from {baseline:number} to {score:number}",
    FindingCode.GATE_WEAKENED: "the change loosens its own checks",
    FindingCode.CODE_DOES_NOT_START: "the agent {name} does not start",
    FindingCode.CODE_RAISES: "the agent's code raises errors in {cases:case}",
    FindingCode.NOTHING_MEASURED: "nothing was measured",
    FindingCode.MODEL_SILENT: "the model does not answer",
    FindingCode.MAIN_COLLAPSED: "main's agent fails as well",
    FindingCode.CREDENTIALS_MISSING: "credentials are missing",
    FindingCode.RUN_ENDED_EARLY: "{ended}",
}

_WRITERS: Final[Mapping[FindingCode, _Writer]] = {
    FindingCode.WORSE: _evidence(""),
    FindingCode.WORSE_WITH_CRITERION: _evidence(": part of what the whole criterion lost"),
    FindingCode.WORSE_WITH_MAIN: _evidence(": part of what main's agent lost as well"),
    FindingCode.FLAKY: _evidence(": flaky, not worse than on main"),
    FindingCode.WORSE_UNDECIDED: _evidence(": likely worse, but too few runs to be sure"),
    FindingCode.WORSE_UNCONTROLLED: _evidence(": not confirmed, the base commit's agent was not run for comparison"),
    FindingCode.BROKEN_ON_MAIN: _evidence(": already broken on main"),
    FindingCode.BELOW_THRESHOLD: _below_threshold,
    FindingCode.SCORE_CHANGED: _score_changed,
    FindingCode.NOT_COMPARED: lambda f: f.fill(
        "{name} is {score}{repeats}; not compared: {why}",
        score="not measured" if f["score"] is None else number(f["score"]),
    ),
    FindingCode.PAIR_REMOVED: lambda f: f.fill(
        "{name} was {score} in the baseline{missed}: {why}",
        score="there" if f["baseline"] is None else number(f["baseline"]),
        missed=", with attempts below its threshold" if f["below"] else "",
    ),
    FindingCode.NO_SCORE: "{name} has no score{share}: {error}",
    FindingCode.NOT_APPLICABLE: "{name} does not apply{judgement}",
    FindingCode.NO_LONGER_APPLICABLE: (
        "{name} does not apply any more to {case_names}, which main has scores of{judgement}"
    ),
    FindingCode.LEFT_OUT: "{name} is {text}",
    FindingCode.MEAN_MISSES_THRESHOLD: _mean_misses_threshold,
    FindingCode.MEAN_BEYOND_LIMIT: _mean_beyond_limit,
    FindingCode.MEAN_WORSE: "{name} got worse by {drop:number} over {cases:case}{doubt}",
    FindingCode.SUSPECTS_WORSE: (
        "{name}: {cases:case} did worse than on main in the first pass and again in {runs:fresh run}, "
        "by {drop:number} on average{doubt}"
    ),
    FindingCode.MAIN_COLLAPSED: lambda f: f.fill(
        "{name}: main's agent scores as low: {before} in its history, {main} just now over {cases:case}, and "
        "{score:number} here: the model, a service or main is failing, which hides the change; run the job again later",
        **dict(zip(("before", "main"), numbers(f["baseline"], f["control"]), strict=True)),
    ),
    FindingCode.NO_ANSWER: "{name} could not be measured{share}: {error}",
    FindingCode.BASE_NO_ANSWER: (
        "there is nothing to compare with: the base commit's agent did not answer {named}: {error}"
    ),
    FindingCode.MODEL_SILENT: (
        "{name}: the model answers nothing, neither here ({attempts:attempt}) nor on main ({control:attempt}), where "
        "main's history has answers: the model or its service is failing; run the job again later"
    ),
    FindingCode.CREDENTIALS_MISSING: _credentials_missing,
    FindingCode.NOTHING_MEASURED: _nothing_measured,
    FindingCode.RUN_ENDED_EARLY: _run_ended_early,
    FindingCode.SHARD_NOT_MEASURED: _shard,
    FindingCode.CODE_RAISES: _code_raises,
    FindingCode.CODE_DOES_NOT_START: (
        "the agent {name} does not start: {error}; that of {base_commit} starts and answers"
    ),
    FindingCode.CASES_WORSE: _cases_of_all("got worse", "got worse"),
    FindingCode.CASES_BELOW_THRESHOLD: _cases_of_all("misses a threshold", "miss a threshold"),
    FindingCode.CASES_STILL_BELOW_THRESHOLD: _cases_of_all("still misses a threshold", "still miss a threshold"),
    FindingCode.CASES_UNDECIDED: "{cases:case} could not be decided, for example",
    FindingCode.COLLECTING: _collecting,
    FindingCode.THRESHOLDS_MET: (
        "{rest}every threshold that counts is met by {measured}; no baseline to compare with{advisories}"
    ),
    FindingCode.NOTHING_WORSE: _nothing_worse,
    FindingCode.GATE_WEAKENED: _gate_weakened,
    FindingCode.REPORT_ONLY: lambda f: f.fill(
        "report only: with {option} the step is green whatever the verdict is", option=Name("fail_on: never")
    ),
    FindingCode.NO_BASELINE: "there is no baseline, so only thresholds count; to begin one: {begin}",
    FindingCode.NO_CONTROL: _no_control,
    FindingCode.CRITERIA_OFF: "not judged, its mode is off: {names}",
    FindingCode.CRITERIA_WITHOUT_LIMIT: "nothing can block on {names}: no threshold counts and no max_drop is set",
    FindingCode.CRITERION_NOT_APPLICABLE: "{name} applies to no case of this run{judgement}",
    FindingCode.CRITERION_NOT_CONFIGURED: "{name} is no longer configured for {cases:case} of main{there_below}",
    FindingCode.CASES_FLAKY: _cases_flaky,
    FindingCode.CASES_GONE: _cases_gone,
    FindingCode.CASES_NOT_COMPARED: _cases_not_compared,
    FindingCode.SHARD_SET_ASIDE: _shard,
    FindingCode.CASES_NOT_RUN: "{cases:case} of the baseline {were} not run: the run was narrowed to {selection}",
    FindingCode.QUARANTINED: _quarantine("quarantined until {until} (owner {owner}): {pair}: {text}; {state}"),
    FindingCode.QUARANTINE_OVERDUE: _quarantine(
        "the quarantine of {pair} ran out on {until} (owner {owner}), so it counts again: {text}"
    ),
    FindingCode.CHANGE_ACCEPTED: (
        "{why}, so main's scores of it do not count, and its history starts anew at the merge: {pairs}"
    ),
    FindingCode.HISTORY_RESTARTED: "compared with main since its change was accepted ({text}): {pairs}",
    FindingCode.THRESHOLD_MOVED: _threshold_moved,
    FindingCode.MODEL_CHANGED: _model_changed,
    FindingCode.ADK_CHANGED: "agent {agent}: google-adk {old} → {new}",
    FindingCode.PACKAGES_CHANGED: "agent {agent}: its installed packages are not those of the baseline",
    **CHANGE_WRITERS,
    FindingCode.DETAIL_WITHHELD: lambda f: joined([f.name, ": " if f.name else "", "results.json says how"], ""),
    FindingCode.TEXT: "{text}",
}
