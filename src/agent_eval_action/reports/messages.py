"""Every sentence about a verdict, made from findings: each report renders the same words with its own escaping."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.errors import ResultsError
from agent_eval_action.reports.change_messages import CHANGE_WRITERS, source
from agent_eval_action.reports.prose import Name, Prose, compose, joined, listed, names, number, numbers, pairs, verb
from agent_eval_action.results.base import StoreKind
from agent_eval_action.results.decision import CriterionChange, Decision, PairChange, Verdict
from agent_eval_action.results.findings import Finding, FindingCode, Reason, Subject

Data = Mapping[str, Any]

BEGIN: Final[Mapping[StoreKind, Prose]] = {
    "file": compose(
        "to make one, run {command} and commit the file it writes", command=Name("agent-eval baseline update")
    ),
    "branch": Prose.join("one begins with the next run on the main branch, which records what it scores"),
    "rerun": Prose.join("it is measured beside a run, on the base commit's agent, which could not be run here"),
}
"""How a baseline comes to be, by what keeps it."""

_CASES_IN_HEADLINE: Final = 3
_CASE, _CRITERION, _LONG_NAME = 100, 60, 120
_WITH_MERGE: Final = ", takes effect with the merge"


@dataclass(frozen=True)
class Messages:
    """The sentences of one decision. ``ambiguous``: case names that several of its cases share."""

    ambiguous: frozenset[str] = frozenset()

    @classmethod
    def for_decision(cls, decision: Decision) -> Messages:
        """The sentences of a decision, naming agent and eval set where the case's name does not tell cases apart."""
        keys = {(pair.agent, pair.eval_set, pair.case) for pair in decision.pairs}
        times = Counter(case for _, _, case in keys)
        return cls(frozenset(case for case, number in times.items() if number > 1))

    def sentence(self, finding: Finding) -> Prose:
        """What a finding says, beginning with what it is about."""
        return self._write(finding, self._subject(finding.subject), finding.subject)

    def pair(self, pair: PairChange, *, with_case: bool = True) -> Prose:
        """What became of a pair; empty where there is nothing to say."""
        if pair.reason is None:
            return Prose()
        name = self._subject(pair.subject) if with_case else Prose.join(Name.shortened(pair.criterion, _CRITERION))
        return self._write(pair.reason, name, pair.subject)

    def headline(self, decision: Decision) -> Prose:
        """Why the outcome is what it is."""
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
        return joined([Prose.join(lead), joined(clauses, "; ")], "")

    def criterion(self, row: CriterionChange, decision: Decision) -> Prose:
        """What there is to say of a criterion's row: its own findings, then how many cases are below or missing."""
        own = [finding for finding in decision.findings if finding.subject == Subject(criterion=row.criterion)]
        parts = [self.sentence(finding) for finding in own if finding not in decision.weakenings]
        if row.failing:
            parts.append(
                Prose.join(f"{plural(row.failing, 'case')} {'misses' if row.failing == 1 else 'miss'} the threshold")
            )
        if row.errors:
            parts.append(Prose.join(f"{plural(row.errors, 'case')} not fully measured"))
        if row.blocks_nothing and (row.blocks_nothing != "collecting" or row.failing):
            parts.append(Prose.join(_BLOCKS_NOTHING[row.blocks_nothing]))
        return joined(parts, "; ")

    def case(self, reference: Data) -> Name:
        """A case's name; with agent and eval set where another case has the same name."""
        parts = (reference["agent"], reference["eval_set"], reference["case"])
        return Name(
            " / ".join(Name.shortened(part, _CASE) for part in (parts if parts[2] in self.ambiguous else parts[2:]))
        )

    def cases(self, data: Data) -> Prose:
        """The cases a finding names, with how many more there are."""
        return listed([Prose.join(self.case(one)) for one in data["named"]], data["cases"])

    def _subject(self, subject: Subject) -> Prose:
        if subject.case is None:
            return Prose.join(Name.shortened(subject.criterion or subject.agent or "", 80))
        case = self.case({"agent": subject.agent, "eval_set": subject.eval_set, "case": subject.case})
        if subject.criterion is None:
            return Prose.join(case)
        return Prose.join(Name(f"{case} › {Name.shortened(subject.criterion, _CRITERION)}"))

    def _write(self, reason: Reason, name: Prose, subject: Subject) -> Prose:
        try:
            written = _WRITERS[reason.code]
            view = View(reason.data, name, subject, self)
            return view.fill(written) if isinstance(written, str) else written(view)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"the finding {reason.code.value} does not have the values it needs ({error!r:.80})"
            raise ResultsError(f"these results cannot be shown: {problem}") from error


@dataclass(frozen=True, slots=True)
class View:
    """A finding as a writer sees it: its values by name, and the sentence parts that several codes share."""

    data: Data
    name: Prose
    subject: Subject
    messages: Messages

    def __getitem__(self, value: str) -> Any:
        return self.data[value]

    def get(self, value: str, default: Any = None) -> Any:
        """A value that not every finding of the code has."""
        return self.data.get(value, default)

    def fill(self, template: str, **parts: Prose | str) -> Prose:
        """The template with its fields: given ``parts``, parts that codes share, or values in the form of the field.

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
            return Name.shortened(value, _LONG_NAME)
        if form.startswith(".") or not form:
            return format(value, form)
        return plural(value, form)


def run_findings(decision: Decision) -> list[Finding]:
    """What is found of the whole run or of a criterion, without weakenings, and what is the headline."""
    headline = decision.reasons if len(decision.reasons) == 1 else ()
    known = {finding.topic for finding in (*headline, *decision.weakenings)}
    return [finding for finding in decision.findings if finding.subject.case is None and finding.topic not in known]


def shows_interval(reason: Reason) -> bool:
    """Whether the sentence says the change's interval."""
    return (
        bool(reason.data.get("interval"))
        and bool(_spread(reason.data))
        and reason.code is not FindingCode.BROKEN_ON_MAIN
    )


_BLOCKS_NOTHING: Final = {
    "advisory": "advisory",
    "no_limit": "no limit is set",
    "collecting": "ADK's default threshold, nobody's own: shown, not held against the run",
}


# --- a case on a criterion -------------------------------------------------------------------------

_AFTER: Final = {
    FindingCode.WORSE: "",
    FindingCode.WORSE_WITH_CRITERION: ": part of what the whole criterion lost",
    FindingCode.WORSE_WITH_MAIN: ": part of what main's agent lost as well",
    FindingCode.FLAKY: ": flaky, not worse than on main",
    FindingCode.WORSE_UNDECIDED: ": too few runs to tell it from chance",
    FindingCode.WORSE_UNCONTROLLED: ": not confirmed, the base commit's agent was not run for comparison",
    FindingCode.BROKEN_ON_MAIN: ": already broken on main",
}


def _evidence(code: FindingCode) -> Callable[[View], Prose]:
    def write(f: View) -> Prose:
        main, here, control = f["main"], f["here"], f.get("control")
        where = "here" if f["rerun"] else "in the first pass here"
        if f["binary"]:
            words = f"passed {_times(main)} times on main and {_times(here)} {where}"
            beside = f"; the base commit's agent passed {_times(control)} just now" if control else ""
        else:
            then, now = numbers(main["mean"], here["mean"])
            words = f"was {then} over {plural(main['n'], 'run')} of main and {now} over {here['n']} {where}"
            beside = f"; the base commit's agent had {number(control['mean'])} just now" if control else ""
        spread = "" if code is FindingCode.BROKEN_ON_MAIN else _spread(f.data)
        tail = "" if code is FindingCode.FLAKY else _explained(f)
        limit = f"; {f['limit']}" if f.get("limit") else ""
        return joined([f.name, f" {words}{spread}{beside}{_AFTER[code]}{tail}{limit}"], "")

    return write


def _times(scores: Data) -> str:
    return f"{scores['passed']} of {scores['n']}"


def _spread(data: Data) -> str:
    ends = [number(end) for end in data.get("interval") or ()]
    return f" (change {ends[0]} to {ends[1]}, 95 %)" if len(set(ends)) > 1 else ""


def _explained(f: View) -> str:
    """What the criterion said of the worst attempt, and which tool call is not the baseline's."""
    changed = _calls(f["calls"]) if f.get("calls") else ""
    parts = [part for part in (f.get("judgement"), changed and f"tool calls changed: {changed}") if part]
    return f": {'; '.join(parts)}" if parts else ""


def _calls(data: Data) -> str:
    change, old, new = data["change"], data.get("old", ""), data.get("new", "")
    if change == "turns":
        return f"{plural(old, 'turn')} in the baseline, {new} now"
    if change == "unknown":
        return f"after turn {old}, of which the baseline keeps no more than a digest"
    what = {
        "added": f"{new} is new",
        "removed": f"{old} is no longer called",
        "moved": f"{old} comes in another place",
        "arguments": f"{old} with other arguments",
        "replaced": f"{old} → {new}",
    }[change]
    return f"turn {data['turn']} {what}"


def _repeats(f: View) -> str:
    parts = []
    if f["n"] > 1:
        met = "" if f.get("passed") is None else f", {f['passed']} met it"
        parts.append(f"mean of {f['n']} attempts{met}")
    if f.get("errors"):
        parts.append(f"{f['errors']} of {f['attempts']} attempts without a score")
    return f" ({'; '.join(parts)})" if parts else ""


def _why(f: View) -> str:
    """Why there is nothing to compare with; a history may know it better than the code does."""
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


def _below_threshold(f: View) -> Prose:
    score, threshold = numbers(f["score"], f["threshold"])
    before = [] if f["baseline"] is None else [f"baseline {number(f['baseline'])}"]
    if f["why"]:
        before.append(f"not comparable: {_why(f)}" if before else _why(f))
    known = ", ".join(before) or "no baseline"
    template = "{name} is {score}{repeats}, {side} its threshold {threshold} ({known}){explained}"
    return f.fill(template, score=score, threshold=threshold, known=known)


def _score_changed(f: View) -> Prose:
    before, after = numbers(f["baseline"], f["score"])
    verb = "rose" if f["score"] > f["baseline"] else "fell"
    fixed = ", and meets its threshold again" if f["fixed"] else ""
    return f.fill(f"{{name}} {verb} from {before} to {after}{{repeats}}{fixed}{{explained}}")


def _not_compared(f: View) -> Prose:
    score = "not measured" if f["score"] is None else number(f["score"])
    return f.fill("{name} is {score}{repeats}; not compared: {why}", score=score)


def _pair_removed(f: View) -> Prose:
    score = "there" if f["baseline"] is None else number(f["baseline"])
    missed = ", with attempts below its threshold" if f["below"] else ""
    return f.fill("{name} was {score} in the baseline{missed}: {why}", score=score, missed=missed)


def _judgement(f: View) -> str:
    return f": {f['judgement']}" if f["judgement"] else ""


def _share(f: View) -> str:
    return f" in {f['errors']} of {f['attempts']} attempts" if f["attempts"] > 1 else ""


# --- a criterion over its cases --------------------------------------------------------------------


def _mean_misses_threshold(f: View) -> Prose:
    score, threshold = numbers(f["score"], f["threshold"])
    template = "{name} is {score} on average over {cases:case}, {side} its suite threshold {threshold}"
    return f.fill(template, score=score, threshold=threshold)


def _mean_beyond_limit(f: View) -> Prose:
    before, after = f["baseline"], f["score"]
    then, now = numbers(before, after)
    if f["goal"] == "maximize":
        allowed, drop = numbers(f["limit"], before - after)
        moved = f"fell by {drop}"
    else:
        allowed = f"{f['limit'] * 100:g} %"
        moved = f"rose by {number((after - before) / abs(before) * 100)} %" if before else "rose from nothing"
    worst = [joined([f.messages.case(one), _from_to(one)], "") for one in f["worst"]]
    most = joined(["; most of it: ", listed(worst, f["worse"])], "") if worst else ""
    template = (
        "{name} {moved} over the {cases:case} both runs have ({span}), more than the allowed {allowed}{most}{doubt}"
    )
    return f.fill(template, moved=moved, span=f"{then} → {now}", allowed=allowed, most=most)


def _from_to(one: Data) -> str:
    then, now = numbers(one["baseline"], one["score"])
    return f" ({then} → {now})"


def _doubt(f: View) -> str:
    """Why what got worse does not block: only what is likely enough by chance may be called so."""
    values = {"p": f.get("p", 1.0), "level": f.get("level", 0.0), "limit": f.get("limit_met", "")}
    return _DOUBTS[f.get("doubt", "")].format(**values)


_DOUBTS: Final = {
    "": "",
    "too_few_runs": "; too few runs to tell it from chance",
    "chance": "; this may be chance (p = {p:.2g})",
    "above_level": "; p = {p:.2g}, and blocking takes p ≤ {level:.2g}",
    "not_controlled": "; the base commit's agent was not run for comparison",
    "control_as_low": "; beside the base commit's agent, run just now, it is not worse than allowed",
    "not_confirmed": ": not confirmed, the base commit's agent was not run for comparison; {limit}",
}


def _main_collapsed(f: View) -> Prose:
    before, main = numbers(f["baseline"], f["control"])
    template = (
        "{name}: main's agent lost it as well: {before} in its history, {main} just now over {cases:case}, and "
        "{score:number} here: the model, a service or main itself is in trouble, and what this change does cannot be "
        "seen; run it again when that is over"
    )
    return f.fill(template, before=before, main=main)


# --- what could not be measured --------------------------------------------------------------------


def _credentials_missing(f: View) -> Prose:
    found = [
        joined([Name.shortened(one["criterion"], _CRITERION), _part(one["cases"], one["of"])], "")
        for one in f["criteria"]
    ]
    return f.fill(
        "{text}: {criteria}{why}", criteria=listed(found, f["total"]), why=f" ({f['why']})" if f["why"] else ""
    )


def _part(cases: int, total: int) -> str:
    return f" in {cases:,} of {plural(total, 'case')}" if cases < total else ""


def _nothing_measured(f: View) -> Prose:
    if not f["criteria"]:
        return Prose.join("nothing was measured: no case ran")
    return f.fill("nothing was measured: no case has a score on {names}", names=names(f["criteria"], limit=_CRITERION))


def _run_ended_early(f: View) -> Prose:
    ended = f["limit"] or _ENDED[f["status"]]
    if not f["missing"]:  # every case was run once: it ended what was run again, or the control
        return Prose.join(f"{ended} before everything was decided")
    return f.fill("{ended} before everything was measured: {missing:case} of {cases} not complete", ended=ended)


_ENDED: Final = {
    "timed_out": "the run reached its max_time",
    "interrupted": "the run was interrupted",
    "limited": "the run met a limit",
}


def _code_raises(f: View) -> Prose:
    named = names([one["case"] for one in f["named"]], f["cases"], 60)
    again, there = (f"{failed} of {plural(made, 'failure')}" for failed, made in (f["again"], f["control"]))
    template = "{names} {fail} with an error of the agent's code: {error} (run again {again}; on {base_commit} {there})"
    return f.fill(template, names=named, fail=verb(f["cases"], "fails", "fail"), again=again, there=there)


def _base_commit(f: View) -> str:
    return f"the base commit {f['base']}" if f.get("base") else "the base commit"


# --- the verdict as a whole ------------------------------------------------------------------------


def _cases_of_all(words: Callable[[int], str]) -> Callable[[View], Prose]:
    def write(f: View) -> Prose:
        named = listed([f.messages.case(one) for one in f["named"][:_CASES_IN_HEADLINE]], f["cases"])
        return f.fill("{cases} of {total:case} {words}: {named}", words=words(f["cases"]), named=named)

    return write


def _measured(f: View) -> str:
    return f"{plural(f['cases'], 'case')} on {plural(f['criteria'], 'criterion', 'criteria')}"


def _advisories(f: View) -> str:
    return f"; {plural(f['advisories'], 'advisory finding')}" if f["advisories"] else ""


def _collecting(f: View) -> Prose:
    below = f", {f['below']} below ADK's default thresholds" if f["below"] else ""
    template = (
        "{measured} measured{below}; there is no baseline and no threshold of your own to hold them to: {begin}, "
        "or set thresholds in test_config.json"
    )
    return f.fill(template, below=below)


def _nothing_worse(f: View) -> Prose:
    share = "all" if f["compared"] == f["scores"] else f"{f['compared']:,} of {f['scores']:,}"
    gone = f"; {plural(f['gone'], 'case')} of the baseline gone" if f["gone"] else ""
    fixed = f"; {plural(f['fixed'], 'case')} fixed" if f["fixed"] else ""
    better = [
        joined(["; ", Name.shortened(one["criterion"], 80), f" is better on average (p = {one['p']:.2g})"], "")
        for one in f["better"]
    ]
    template = (
        "{rest}nothing got worse than allowed: {measured}, {share} scores compared with the baseline"
        "{gone}{fixed}{better}{advisories}"
    )
    return f.fill(template, share=share, gone=gone, fixed=fixed, better=joined(better, ""))


def _gate_weakened(f: View) -> Prose:
    more = f" (and {plural(f['more'], 'more change')} to what the agent is measured by)" if f["more"] else ""
    return Prose.join(f"this change weakens the gate, which on_weakened: fail forbids{more}")


# --- what to know beside the verdict ---------------------------------------------------------------


def _no_control(f: View) -> Prose:
    if f.subject.agent is None:
        return f.fill("no control: {error}; the verdict stands on history")
    return f.fill("no control of {name}: {error}; its verdict stands on history")


def _criterion_not_configured(f: View) -> Prose:
    below = f", {f['below']} of them below its threshold there" if f["below"] else ""
    return f.fill("{name} is no longer configured for {cases:case} of the baseline{below}", below=below)


def _cases_flaky(f: View) -> Prose:
    def rate(one: Data) -> str:
        return f" ({_times(one)})" if one["binary"] else f" ({number(one['mean'])} over {plural(one['n'], 'run')})"

    template = "flaky: {scores:score} worse than on main at first, as on main when run again: {pairs}"
    return f.fill(template, pairs=pairs(f["named"], f["scores"], rate))


def _cases_gone(f: View) -> Prose:
    text = f.fill("{cases:case} of the baseline {are} gone from this run: {named}", are=verb(f["cases"], "is", "are"))
    if not f["below"]["cases"]:
        return text
    return joined([text, "; below a threshold in the baseline: ", f.messages.cases(f["below"])], "")


def _cases_not_compared(f: View) -> Prose:
    if not f["criteria"]:
        return f.fill("not compared, judged by thresholds alone: {cases:case} ({why}): {named}")
    falls = "falls back to its threshold" if len(f["criteria"]) == 1 else "fall back to their thresholds"
    criteria = names(f["criteria"][:5], len(f["criteria"]))
    return f.fill("{why}: {criteria} {falls} in {cases:case}: {named}", criteria=criteria, falls=falls)


def _cases_not_run(f: View) -> Prose:
    template = "{cases:case} of the baseline {were} not run: the run was narrowed to {selection}"
    return f.fill(template, were=verb(f["cases"], "was", "were"))


def _threshold_moved(f: View) -> Prose:
    then, now = ("none" if value is None else number(value) for value in (f["old"], f["new"]))
    return f.fill(f"{{name}}: threshold {then} → {now} since the baseline, {{cases:case}}")


def _model_changed(f: View) -> Prose:
    old, new = (listed(f[side][:5], len(f[side])) for side in ("old", "new"))
    return f.fill("agent {agent}: model {old} → {new} since the baseline", old=old, new=new)


# --- the sentence of each code ---------------------------------------------------------------------

_PARTS: Final[Mapping[str, Callable[[View], Prose | str]]] = {
    "name": lambda f: f.name,
    "agent": lambda f: f.name.plain,
    "case": lambda f: Name.shortened(f.subject.case or "", _LONG_NAME),
    "named": lambda f: f.messages.cases(f.data),
    "case_names": lambda f: names([one["case"] for one in f["named"]], f["cases"], _LONG_NAME),
    "names": lambda f: names(f["criteria"], f["total"], _CRITERION),
    "pairs": lambda f: pairs(f["named"], f["pairs"]),
    "side": lambda f: "above" if f["goal"] == "minimize" else "below",
    "rest": lambda f: "of the rest " if f["rest"] else "",
    "begin": lambda f: BEGIN[f["store"]],
    "merge": lambda f: _WITH_MERGE if f.get("with_merge") else "",
    "repeats": _repeats,
    "explained": _explained,
    "why": _why,
    "judgement": _judgement,
    "share": _share,
    "doubt": _doubt,
    "base_commit": _base_commit,
    "measured": _measured,
    "advisories": _advisories,
    "source": source,
}
"""Fields of templates that several sentences have."""

_WRITERS: Final[Mapping[FindingCode, str | Callable[[View], Prose]]] = {
    **{code: _evidence(code) for code in _AFTER},
    FindingCode.BELOW_THRESHOLD: _below_threshold,
    FindingCode.SCORE_CHANGED: _score_changed,
    FindingCode.NOT_COMPARED: _not_compared,
    FindingCode.PAIR_REMOVED: _pair_removed,
    FindingCode.NO_SCORE: "{name} has no score{share}: {error}",
    FindingCode.NOT_APPLICABLE: "{name} does not apply{judgement}",
    FindingCode.LEFT_OUT: "{name} is {text}",
    FindingCode.MEAN_MISSES_THRESHOLD: _mean_misses_threshold,
    FindingCode.MEAN_BEYOND_LIMIT: _mean_beyond_limit,
    FindingCode.MEAN_WORSE: "{name} got worse by {drop:number} over {cases:case}{doubt}",
    FindingCode.SUSPECTS_WORSE: (
        "{name}: {cases:case} did worse than on main in the first pass and again in {runs:fresh run}, "
        "by {drop:number} on average (p = {p:.2g}){doubt}"
    ),
    FindingCode.MAIN_COLLAPSED: _main_collapsed,
    FindingCode.NO_ANSWER: "{name} could not be measured{share}: {error}",
    FindingCode.BASE_NO_ANSWER: (
        "there is nothing to compare with: the base commit's agent did not answer {named}: {error}"
    ),
    FindingCode.MODEL_SILENT: (
        "{name}: the model answers nothing, neither here ({attempts:attempt}) nor on main ({control:attempt}), where "
        "main's history has answers: the model or its service is in trouble; run it again when that is over"
    ),
    FindingCode.CREDENTIALS_MISSING: _credentials_missing,
    FindingCode.NOTHING_MEASURED: _nothing_measured,
    FindingCode.RUN_ENDED_EARLY: _run_ended_early,
    FindingCode.CODE_RAISES: _code_raises,
    FindingCode.CODE_DOES_NOT_START: (
        "the agent {name} does not start: {error}; that of {base_commit} starts and answers"
    ),
    FindingCode.CASES_WORSE: _cases_of_all(lambda _: "got worse"),
    FindingCode.CASES_BELOW_THRESHOLD: _cases_of_all(lambda n: f"{verb(n, 'misses', 'miss')} a threshold"),
    FindingCode.CASES_STILL_BELOW_THRESHOLD: _cases_of_all(
        lambda n: f"{verb(n, 'misses', 'miss')} a threshold as in the baseline"
    ),
    FindingCode.CASES_UNDECIDED: "{cases:case} could not be decided, the first",
    FindingCode.COLLECTING: _collecting,
    FindingCode.THRESHOLDS_MET: (
        "{rest}every threshold that counts is met by {measured}; no baseline to compare with{advisories}"
    ),
    FindingCode.NOTHING_WORSE: _nothing_worse,
    FindingCode.GATE_WEAKENED: _gate_weakened,
    FindingCode.REPORT_ONLY: lambda f: f.fill(
        "report only: with {option} the step is green whatever the verdict is", option=Name("fail_on: never")
    ),
    FindingCode.NO_BASELINE: "there is no baseline, so only thresholds count; {begin}",
    FindingCode.NO_CONTROL: _no_control,
    FindingCode.CRITERIA_OFF: "not judged, its mode is off: {names}",
    FindingCode.CRITERIA_WITHOUT_LIMIT: "nothing can block on {names}: no threshold counts and no max_drop is set",
    FindingCode.CRITERION_NOT_APPLICABLE: "{name} applies to no case of this run{judgement}",
    FindingCode.CRITERION_NOT_CONFIGURED: _criterion_not_configured,
    FindingCode.CASES_FLAKY: _cases_flaky,
    FindingCode.CASES_GONE: _cases_gone,
    FindingCode.CASES_NOT_COMPARED: _cases_not_compared,
    FindingCode.CASES_NOT_RUN: _cases_not_run,
    FindingCode.CHANGE_ACCEPTED: (
        "{why}, so main's scores of it do not count, and its history starts anew at the merge: {pairs}"
    ),
    FindingCode.HISTORY_RESTARTED: "compared with main since its change was accepted ({text}): {pairs}",
    FindingCode.THRESHOLD_MOVED: _threshold_moved,
    FindingCode.MODEL_CHANGED: _model_changed,
    FindingCode.ADK_CHANGED: "agent {agent}: google-adk {old} → {new}",
    FindingCode.PACKAGES_CHANGED: "agent {agent}: its installed packages are not those of the baseline",
    **CHANGE_WRITERS,
    FindingCode.DETAIL_WITHHELD: lambda f: joined([f.name, ": " if f.name else "", "how is said in results.json"], ""),
    FindingCode.TEXT: "{text}",
}
