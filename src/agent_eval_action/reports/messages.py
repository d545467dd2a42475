"""Turns findings into sentences. Every report uses the same sentences, with its own escaping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent_eval_action.baseline import STORES
from agent_eval_action.errors import ResultsError
from agent_eval_action.reports.formatting import (
    Name,
    Prose,
    compose,
    filled,
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

KIND_LABELS: Final = {kind: kind.value.replace("_", " ") for kind in ChangeKind} | {
    ChangeKind.SAME: "unchanged",
    ChangeKind.CHANGED: "changed definition",
    ChangeKind.ON_MAIN: "already broken on main",
}
OUTCOME_LABELS: Final = {
    Verdict.PASS: "Passed",
    Verdict.FAIL: "Blocked",
    Verdict.INCONCLUSIVE: "Inconclusive",
    Verdict.COLLECTING: "Collecting",
}

_CASE, _CRITERION, _LONG = 100, 60, 120


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
        return self._write(finding, finding.subject, _WRITERS)

    def heading(self, finding: Finding) -> Prose:
        """Return a reason of the outcome in a few words."""
        return self._write(finding, finding.subject, {**_WRITERS, **_HEADINGS})

    def pair(self, pair: PairChange, *, with_case: bool = True) -> Prose:
        """Describe a pair's result; empty if there is nothing to say."""
        if pair.reason is None:
            return Prose()
        name = None if with_case else Name.shortened(pair.criterion, _CRITERION)
        return self._write(pair.reason, pair.subject, _WRITERS, name)

    def headline(self, decision: Decision) -> Prose:
        """Explain the outcome in one sentence."""
        parts: list[Prose | str] = []
        for finding in decision.reasons:
            if sentence := self.sentence(finding):
                of_several = finding.code in {FindingCode.CASES_UNDECIDED, FindingCode.GATE_WEAKENED}
                parts += [sentence, ": " if of_several else "; "]
        measured = any(finding.code is not FindingCode.TEXT for finding in decision.reasons)
        lead = "could not tell: " if decision.outcome is Verdict.INCONCLUSIVE and measured else ""
        return joined([lead, *parts[:-1]], "")

    def case(self, reference: Data) -> Name:
        """Return a case's name, with agent and eval set if another case has the same name."""
        parts = (reference["agent"], reference["eval_set"], reference["case"])
        shown = parts if parts[2] in self.ambiguous else parts[2:]
        return Name(" / ".join(Name.shortened(part, _CASE) for part in shown))

    def cases(self, data: Data, most: int | None = None) -> Prose:
        """Return the cases that a finding names, and how many more there are."""
        return listed([self.case(one) for one in data["named"][:most]], data["cases"])

    def _subject(self, subject: Subject) -> Name:
        if subject.case is None:
            return Name.shortened(subject.criterion or subject.agent or "", 80)
        case = self.case({"agent": subject.agent, "eval_set": subject.eval_set, "case": subject.case})
        return Name(f"{case} › {Name.shortened(subject.criterion, _CRITERION)}") if subject.criterion else case

    def _write(
        self, reason: Reason, subject: Subject, writers: Mapping[FindingCode, _Writer], name: Name | None = None
    ) -> Prose:
        fields = Fields(reason.data, self._subject(subject) if name is None else name, subject, self)
        writer = writers[reason.code]
        try:
            return fields.fill(writer) if isinstance(writer, str) else writer(fields)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"the finding {reason.code.value} does not have the values it needs ({error!r:.80})"
            raise ResultsError(f"these results cannot be shown: {problem}") from error


@dataclass(frozen=True, slots=True)
class Fields:
    """A finding's values by name, and parts of sentences that templates share."""

    data: Data
    name: Name
    subject: Subject
    messages: Messages

    def __getitem__(self, value: str) -> Any:
        return self.data[value]

    def fill(self, template: str, **parts: Prose | str) -> Prose:
        """Fill a template: its fields are the given ``parts``, those of ``_PARTS``, or values in the field's format.

        ``{drop:number}`` is a score, ``{score:beside threshold}`` a score with enough digits to differ from another,
        ``{path:code}`` a name, ``{p:.2g}`` a number in that format, ``{cases:case}`` a count of that noun,
        ``{cases:is|are}`` the form of a verb for that count.
        """
        return filled(template, lambda field, form: parts[field] if field in parts else self._field(field, form))

    def _field(self, field: str, form: str) -> Prose | str:
        if field in _PARTS:
            return _PARTS[field](self)
        value = self.data[field]
        if form == "number":
            return number(value)
        if form.startswith("beside "):
            return numbers(value, self.data[form.removeprefix("beside ")])[0]
        if form == "code":
            return Name.shortened(value, _LONG)
        if "|" in form:
            return verb(value, *form.split("|"))
        return format(value, form) if form.startswith(".") or not form else plural(value, form)


_Writer = str | Callable[[Fields], Prose]


def run_findings(decision: Decision) -> list[Finding]:
    """Return findings about the run or a criterion that are neither reasons of the verdict nor weakenings."""
    known = {finding.topic for finding in (*decision.reasons, *decision.weakenings)}
    return [finding for finding in decision.findings if finding.subject.case is None and finding.topic not in known]


# --- a case on a criterion -------------------------------------------------------------------------


def _evidence(f: Fields) -> Prose:
    main, here, control = f["main"], f["here"], f.data.get("control")
    where = "here" if f["rerun"] else "in the first pass here"
    if f["binary"]:
        words = f" passed {_times(main)} times on main and {_times(here)} {where}"
        beside = f"; the base commit's agent passed {_times(control)} just now" if control else ""
    else:
        then, now = numbers(main["mean"], here["mean"])
        words = f" was {then} over {plural(main['n'], 'run')} of main and {now} over {here['n']} {where}"
        beside = f"; the base commit's agent had {number(control['mean'])} just now" if control else ""
    return joined([f.name, words, beside], "")


def _times(scores: Data) -> str:
    return f"{scores['passed']} of {scores['n']}"


def _explained(f: Fields) -> str:
    """Return the criterion's explanation of the worst attempt, and the tool call that differs from the baseline."""
    changed = f"tool calls changed: {_calls(f['calls'])}" if f.data.get("calls") else ""
    parts = [part for part in (f.data.get("judgement"), changed) if part]
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
        met = "" if f.data.get("passed") is None else f", {f['passed']} met it"
        parts.append(f"mean of {f['n']} attempts{met}")
    if f.data.get("errors"):
        parts.append(f"{f['errors']} of {f['attempts']} attempts without a score")
    return f" ({'; '.join(parts)})" if parts else ""


def _why(f: Fields) -> str:
    """Say why a pair cannot be compared; the history may give a more specific reason than the code."""
    text = f.data.get("text", "")
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
    before = [] if f["baseline"] is None else [f"baseline {number(f['baseline'])}"]
    if f["why"]:
        before.append(f"not comparable: {_why(f)}" if before else _why(f))
    accepted = "; accepting lifts the comparison, not the threshold" if f["why"] == "accepted" else ""
    template = (
        "{name} is {score:beside threshold}{repeats}, {side} its threshold {threshold:beside score} "
        "({known}){accepted}{explained}"
    )
    return f.fill(template, known=", ".join(before) or "no baseline", accepted=accepted)


def _score_changed(f: Fields) -> Prose:
    rose = "rose" if f["score"] > f["baseline"] else "fell"
    fixed = ", and meets its threshold again" if f["fixed"] else ""
    template = "{name} {rose} from {baseline:beside score} to {score:beside baseline}{repeats}{fixed}{explained}"
    return f.fill(template, rose=rose, fixed=fixed)


# --- a criterion over its cases --------------------------------------------------------------------


def _mean_beyond_limit(f: Fields) -> Prose:
    allowed = number(f["limit"]) if f["goal"] == "maximize" else f"{f['limit'] * 100:g} %"
    worst = [
        joined([f.messages.case(one), " ({} → {})".format(*numbers(one["baseline"], one["score"]))], "")
        for one in f["worst"]
    ]
    most = joined(["; most of it: ", listed(worst, f["worse"])], "") if worst else ""
    template = (
        "{name} {moved} from {baseline:beside score} to {score:beside baseline} over {cases:case}; "
        "at most {allowed} is allowed{most}{doubt}"
    )
    return f.fill(template, allowed=allowed, most=most)


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
    detail = f" ({f['detail']})" if f["detail"] else ""
    unmeasured = ": {cases:case} {cases:is|are} not measured ({case_names})" if f["cases"] else ""
    return f.fill(
        _SHARDS[f["kind"]] + unmeasured, which=which, detail=detail, source=Name.shortened(f["source"], _LONG)
    )


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
    template = (
        "{names} {cases:fails|fail} with an error of the agent's code: {error} "
        "(run again {again}; on {base_commit} {there})"
    )
    return f.fill(template, names=named, again=again, there=there)


# --- the verdict as a whole ------------------------------------------------------------------------


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


# --- what to know beside the verdict ---------------------------------------------------------------


def _cases_flaky(f: Fields) -> Prose:
    def rate(one: Data) -> str:
        return f" ({_times(one)})" if one["binary"] else f" ({number(one['mean'])} over {plural(one['n'], 'run')})"

    template = "flaky: {scores:score} worse than on main at first, as on main when run again: {pairs}"
    return f.fill(template, pairs=pairs(f["named"], f["scores"], rate))


def _cases_not_compared(f: Fields) -> Prose:
    if not f["criteria"]:
        why = _why(f).removeprefix("the case is ").removeprefix("the case was ")
        return f.fill("{why}, so only {cases:its|their} thresholds apply: {named}", why=why)
    falls = "falls back to its threshold" if len(f["criteria"]) == 1 else "fall back to their thresholds"
    criteria = names(f["criteria"][:5], len(f["criteria"]))
    return f.fill("{why}: {criteria} {falls} in {cases:case}: {named}", criteria=criteria, falls=falls)


_QUARANTINE_STATES: Final = {
    "failing": "it fails here, which does not count",
    "unmeasured": "it could not be measured here, which does not count",
    "passing": "it passes here",
}


def _path(*parts: str | None) -> Prose:
    return joined([Name.shortened(part, _LONG) for part in parts if part], " › ")


def main_event(event: MainEvent) -> Prose:
    """Describe in a few words what changed on main with a run."""
    name, case_names = Name.shortened(event.subject, _CRITERION), Name.shortened(event.text, _LONG)
    if event.kind == "cases":
        return compose(f"{plural(event.cases, 'case')} redefined: {{cases}}", cases=case_names)
    lead = {"model": "model of {name}", "adk": "google-adk of {name}", "accepted": "accepted {name}"}
    text = f": {event.text}" if event.text else ""
    return compose(lead.get(event.kind, "{name}") + "{text}", name=name, text=text)


# --- how a change relaxes the gate -----------------------------------------------------------------

_EDITS: Final = {
    "definition": "its definition changed",
    "recorded": "its turns are recorded, and the agent is not asked any more",
    "turns": "turns {old} → {new}",
    "session": "how its session begins, or its scenario, changed",
    "question": "{where} says something else to the agent",
    "call_replaced": "{where} expects {new:code} instead of {old:code}",
    "calls_removed": "{where} no longer expects {items}",
    "calls_added": "{where} expects {items} as well",
    "calls_reordered": "{where} expects its calls in another order",
    "answer_removed": "{where} has no reference answer any more",
    "answer_shortened": "the reference answer of {where} was cut from {old:word} to {new}",
    "answer_changed": "the reference answer of {where} changed",
    "rubrics_removed": "{where} lost {count:rubric} ({items})",
}


def _edit(f: Fields, edit: Data) -> Prose:
    where = f"turn {edit['turn']}" if edit.get("turn") else "it"
    items = names(edit.get("items", ()), edit.get("count"))
    return replace(f, data=edit).fill(_EDITS[edit["edit"]], where=where, items=items)


def _criterion_loosened(f: Fields) -> Prose:
    option, old, new = f["option"], f["old"], f["new"]
    if f.data.get("removed"):
        entries = plural(f["count"], option.removesuffix("s"))
        what: Prose | str = joined([f"{entries} removed (", names(f["removed"], f["count"]), ")"], "")
    elif option == "threshold" and new is not None:
        then, now = numbers(old, new)
        what = f"threshold {'lowered' if new < old else 'raised'} {then} → {now}"
    else:
        what = f"{option} {_option_value(old)} → {'none' if option == 'threshold' else _option_value(new)}"
    return f.fill("{name}{source}: {what}{merge}", what=what)


def _option_value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _rule(f: Fields) -> Prose:
    criteria = joined([" for ", names(f["criteria"], f["total"])], "") if f.data.get("criteria") else ""
    eval_set = joined([" for the eval set ", Name.shortened(f["eval_set"], 80)], "") if f.data.get("eval_set") else ""
    moved = f.fill(", where {case_names} {cases:is|are} now") if f.data.get("cases") else ""
    template = "{rule} {old} → {new}{criteria}{eval_set}{moved} ({file}){merge}"
    return f.fill(template, criteria=criteria, eval_set=eval_set, moved=moved)


def _changed_scores(f: Fields) -> Prose:
    def change(score: Data) -> str:
        if score.get("old") is None:
            return ""
        old, new = score["old"], score["new"]
        if isinstance(old, float):
            old, new = numbers(old, new)
        return f" {old} → {new}"

    return pairs(f["named"], f["scores"], change)


_AGENT_FIELDS: Final = {
    "path": "folder",
    "url": "address",
    "headers": "header",
    "python": "interpreter",
    "env": "variable",
    "install_env": "variable of its installation",
}


def _agent_changed(f: Fields) -> Prose:
    def shown(value: Data) -> str:
        """Return a value's text; ``state`` marks a value that is not set or is the job's own."""
        if value.get("state"):
            return {"unset": "not set", "job": "the job's own"}[value["state"]]
        return Name.shortened(value["text"], 80) if value["text"] else "none"

    values = {side: shown(f[side]) for side in ("old", "new")}
    if f["field"] == "name":
        return f.fill("the agent {name}: its name was {old}", **values)
    variable = [" ", Name.shortened(f["variable"], 80)] if f.data.get("variable") else []
    what = joined([_AGENT_FIELDS.get(f["field"], f["field"]), *variable], "")
    return f.fill("the agent {name}: its {what} is now {new} (was {old})", what=what, **values)


# --- the sentence of each code ---------------------------------------------------------------------

_PARTS: Final[Mapping[str, Callable[[Fields], Prose | str]]] = {
    "name": lambda f: f.name,
    "agent": lambda f: str(f.name),
    "case": lambda f: Name.shortened(f.subject.case or "", _LONG),
    "entry": lambda f: _path(f.subject.case, f.subject.criterion),
    "pair": lambda f: _path(f["case"], f["criterion"]),
    "named": lambda f: f.messages.cases(f.data),
    "first_named": lambda f: f.messages.cases(f.data, 3),
    "case_names": lambda f: names([one["case"] for one in f["named"]], f["cases"], _LONG),
    "names": lambda f: names(f["criteria"], f["total"], _CRITERION),
    "pairs": lambda f: pairs(f["named"], f["pairs"]),
    "changed_scores": _changed_scores,
    "edits": lambda f: joined([_edit(f, edit) for edit in f["edits"]], "; "),
    "more_edits": lambda f: f"; and {f['more']:,} more edits" if f.data.get("more") else "",
    "more_changes": lambda f: (
        f" (and {plural(f['more'], 'more change')} to what the agent is measured by)" if f["more"] else ""
    ),
    "side": lambda f: "above" if f["goal"] == "minimize" else "below",
    "moved": lambda f: "fell" if f["goal"] == "maximize" else "rose",
    "ended": lambda f: f["limit"] or _ENDED[f["status"]],
    "rest": lambda f: "of the rest " if f["rest"] else "",
    "begin": lambda f: BEGIN[f["store"]],
    "merge": lambda f: ", takes effect with the merge" if f.data.get("with_merge") else "",
    "evidence": _evidence,
    "repeats": _repeats,
    "explained": _explained,
    "limit_met": lambda f: f"; {f['limit']}" if f.data.get("limit") else "",
    "why": _why,
    "judgement": lambda f: f": {f['judgement']}" if f["judgement"] else "",
    "share": lambda f: f" in {f['errors']} of {f['attempts']} attempts" if f["attempts"] > 1 else "",
    "doubt": lambda f: _DOUBTS[f.data.get("doubt", "")].format(limit=f.data.get("limit_met", "")),
    "base_commit": lambda f: f"the base commit {f['base']}" if f.data.get("base") else "the base commit",
    "measured": lambda f: f"{plural(f['cases'], 'case')} on {plural(f['criteria'], 'criterion', 'criteria')}",
    "advisories": lambda f: f"; {plural(f['advisories'], 'advisory finding')}" if f["advisories"] else "",
    "below_default": lambda f: f"; {f['below']} below ADK's default thresholds" if f["below"] else "",
    "there_below": lambda f: f", {f['below']} of them below its threshold there" if f["below"] else "",
    "gone_below": lambda f: (
        joined(["; below a threshold there: ", f.messages.cases(f["below"])], "") if f["below"]["cases"] else ""
    ),
    "main_agent": lambda f: joined(["main's agent", *([" ", f.name] if f.subject.agent else [])], ""),
    "its_cases": lambda f: "its case is" if f["cases"] == 1 else f"its {plural(f['cases'], 'case')} are",
    "state": lambda f: _QUARANTINE_STATES[f["state"]],
    "source": lambda f: {"default": " (by ADK's defaults)", "": ""}.get(f["source"], f" ({f['source']})"),
}
"""Fields of templates that say more than a value of the finding."""

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
    FindingCode.WORSE: "{evidence}{explained}{limit_met}",
    FindingCode.WORSE_WITH_CRITERION: "{evidence}: part of what the whole criterion lost{explained}{limit_met}",
    FindingCode.WORSE_WITH_MAIN: "{evidence}: part of what main's agent lost as well{explained}{limit_met}",
    FindingCode.FLAKY: "{evidence}: flaky, not worse than on main{explained}{limit_met}",
    FindingCode.WORSE_UNDECIDED: "{evidence}: likely worse, but too few runs to be sure{explained}{limit_met}",
    FindingCode.WORSE_UNCONTROLLED: (
        "{evidence}: not confirmed, the base commit's agent was not run for comparison{explained}{limit_met}"
    ),
    FindingCode.BROKEN_ON_MAIN: "{evidence}: already broken on main{explained}{limit_met}",
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
    FindingCode.MEAN_MISSES_THRESHOLD: (
        "{name} is {score:beside threshold} on average over {cases:case}, "
        "{side} its suite threshold {threshold:beside score}"
    ),
    FindingCode.MEAN_BEYOND_LIMIT: _mean_beyond_limit,
    FindingCode.MEAN_WORSE: "{name} got worse by {drop:number} over {cases:case}{doubt}",
    FindingCode.SUSPECTS_WORSE: (
        "{name}: {cases:case} did worse than on main in the first pass and again in {runs:fresh run}, "
        "by {drop:number} on average{doubt}"
    ),
    FindingCode.MAIN_COLLAPSED: (
        "{name}: main's agent scores as low: {baseline:beside control} in its history, {control:beside baseline} just "
        "now over {cases:case}, and {score:number} here: the model, a service or main is failing, which hides the "
        "change; run the job again later"
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
    FindingCode.NOTHING_MEASURED: lambda f: f.fill(
        "nothing was measured: no case has a score on {names}" if f["criteria"] else "nothing that counts was measured",
        names=names(f["criteria"], limit=_CRITERION),
    ),
    FindingCode.RUN_ENDED_EARLY: lambda f: f.fill(
        "{ended}: {missing} of {cases:case} {missing:is|are} not measured"
        if f["missing"]
        else "{ended} before everything was decided"  # every case was run once: it ended during re-runs or the control
    ),
    FindingCode.SHARD_NOT_MEASURED: _shard,
    FindingCode.CODE_RAISES: _code_raises,
    FindingCode.CODE_DOES_NOT_START: (
        "the agent {name} does not start: {error}; that of {base_commit} starts and answers"
    ),
    FindingCode.CASES_WORSE: "{cases} of {total:case} got worse: {first_named}",
    FindingCode.CASES_BELOW_THRESHOLD: "{cases} of {total:case} {cases:misses|miss} a threshold: {first_named}",
    FindingCode.CASES_STILL_BELOW_THRESHOLD: (
        "{cases} of {total:case} still {cases:misses|miss} a threshold: {first_named}"
    ),
    FindingCode.CASES_UNDECIDED: "{cases:case} could not be decided, for example",
    FindingCode.COLLECTING: (
        "nothing to compare with yet: {measured} measured{below_default}; "
        "{begin}, or set thresholds in test_config.json"
    ),
    FindingCode.THRESHOLDS_MET: (
        "{rest}every threshold that counts is met by {measured}; no baseline to compare with{advisories}"
    ),
    FindingCode.NOTHING_WORSE: _nothing_worse,
    FindingCode.GATE_WEAKENED: ("this change loosens its own checks, and on_weakened: fail blocks that{more_changes}"),
    FindingCode.REPORT_ONLY: lambda f: f.fill(
        "report only: with {option} the step is green whatever the verdict is", option=Name("fail_on: never")
    ),
    FindingCode.NO_BASELINE: "there is no baseline, so only thresholds count; to begin one: {begin}",
    FindingCode.NO_CONTROL: ("{main_agent} was not run for comparison ({error}), so only main's stored scores count"),
    FindingCode.CRITERIA_OFF: "not judged, its mode is off: {names}",
    FindingCode.CRITERIA_WITHOUT_LIMIT: "nothing can block on {names}: no threshold counts and no max_drop is set",
    FindingCode.CRITERION_NOT_APPLICABLE: "{name} applies to no case of this run{judgement}",
    FindingCode.CRITERION_NOT_CONFIGURED: "{name} is no longer configured for {cases:case} of main{there_below}",
    FindingCode.CASES_FLAKY: _cases_flaky,
    FindingCode.CASES_GONE: "{named} {cases:is|are} on main but not in this run{gone_below}",
    FindingCode.CASES_NOT_COMPARED: _cases_not_compared,
    FindingCode.SHARD_SET_ASIDE: _shard,
    FindingCode.CASES_NOT_RUN: (
        "{cases:case} of the baseline {cases:was|were} not run: the run was narrowed to {selection}"
    ),
    FindingCode.QUARANTINED: "quarantined until {until} (owner {owner}): {pair}: {text}; {state}",
    FindingCode.QUARANTINE_OVERDUE: (
        "the quarantine of {pair} ran out on {until} (owner {owner}), so it counts again: {text}"
    ),
    FindingCode.CHANGE_ACCEPTED: (
        "{why}, so main's scores of it do not count, and its history starts anew at the merge: {pairs}"
    ),
    FindingCode.HISTORY_RESTARTED: "compared with main since its change was accepted ({text}): {pairs}",
    FindingCode.THRESHOLD_MOVED: lambda f: f.fill(
        "{name}: threshold {old} → {new} since the baseline, {cases:case}",
        **{side: "none" if f[side] is None else number(f[side]) for side in ("old", "new")},
    ),
    FindingCode.MODEL_CHANGED: lambda f: f.fill(
        "agent {agent}: model {old} → {new} since the baseline",
        **{side: listed(f[side][:5], len(f[side])) for side in ("old", "new")},
    ),
    FindingCode.ADK_CHANGED: "agent {agent}: google-adk {old} → {new}",
    FindingCode.PACKAGES_CHANGED: "agent {agent}: its installed packages are not those of the baseline",
    FindingCode.SET_REMOVED: "{path:code} is no longer run: {its_cases} not measured ({case_names})",
    FindingCode.CASE_REMOVED: "case {case} was removed from {path:code}",
    FindingCode.CASES_REMOVED: "{cases:case} were removed from {path:code}: {case_names}",
    FindingCode.CASE_LOOSENED: "case {case} in {path:code} expects less: {edits}{more_edits}",
    FindingCode.CASE_EDITED: (
        "case {case} in {path:code} was edited, so main's scores of it no longer count: {edits}{more_edits}"
    ),
    FindingCode.CASES_EDITED: "{cases:more case} in {path:code} changed likewise: {case_names}",
    FindingCode.CRITERION_REMOVED: "{name} is no longer scored in {path:code}{source}{merge}",
    FindingCode.CRITERION_LOOSENED: _criterion_loosened,
    FindingCode.RULE_LOOSENED: _rule,
    FindingCode.RULE_CHANGED: _rule,
    FindingCode.BASELINE_REMOVED: (
        "the stored baseline was removed, or cannot be read any more: {scores:score} of main are lost"
    ),
    FindingCode.BASELINE_SCORES_REMOVED: "the stored baseline loses {scores:score}: {changed_scores}",
    FindingCode.BASELINE_SCORES_LOWERED: "the stored baseline is loosened for {scores:score}: {changed_scores}",
    FindingCode.BASELINE_SCORES_THINNED: (
        "the stored baseline rests on fewer attempts for {scores:score}: {changed_scores}"
    ),
    FindingCode.ACCEPTANCE_ADDED: lambda f: f.fill(
        "accept.yaml accepts a change of {entry}{reason}{ignored}",
        reason=f": {f['text']}" if f["text"] else " without a reason",
        ignored="; gate.accept: ignore, so main's scores of it still count" if f["ignored"] else "",
    ),
    FindingCode.QUARANTINE_ADDED: lambda f: f.fill(
        "accept.yaml quarantines {entry} until {until} (owner {owner}): {text}{ignored}",
        ignored="; gate.accept: ignore, so it counts all the same" if f["ignored"] else "",
    ),
    FindingCode.AGENT_CHANGED: _agent_changed,
    FindingCode.METRIC_CHANGED: lambda f: f.fill(
        "the metric function {function:code} ({file}) was {verb}{merge}", verb="removed" if f["removed"] else "edited"
    ),
    FindingCode.DETAIL_WITHHELD: lambda f: joined([f.name, ": " if f.name else "", "results.json says how"], ""),
    FindingCode.TEXT: "{text}",
}
