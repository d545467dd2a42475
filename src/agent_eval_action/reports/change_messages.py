"""The sentences about what a change does to the gate itself: cases, criteria, rules, stored scores, agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.reports.prose import Name, Prose, compose, joined, names, numbers, pairs
from agent_eval_action.results.findings import FindingCode

if TYPE_CHECKING:
    from agent_eval_action.reports.messages import View

_LONG_NAME: Final = 120


def _set_removed(f: View) -> Prose:
    many = "its case is" if f["cases"] == 1 else f"its {plural(f['cases'], 'case')} are"
    return f.fill("{path:code} is no longer run: {many} not measured ({case_names})", many=many)


def _edited_case(what: str) -> Callable[[View], Prose]:
    def write(f: View) -> Prose:
        more = f"; and {f['more']:,} more edits" if f.get("more") else ""
        edits = joined([_edit(edit) for edit in f["edits"]], "; ")
        return f.fill(f"case {{case}} in {{path:code}} {what}: {{edits}}{more}", edits=edits)

    return write


_EDITS: Final = {
    "definition": "its definition changed",
    "turns": "turns {old} → {new}",
    "session": "how its session begins, or its scenario, changed",
    "question": "{where} says something else to the agent",
    "call_replaced": "{where} expects {new} instead of {old}",
    "calls_removed": "{where} no longer expects {items}",
    "calls_added": "{where} expects {items} as well",
    "calls_reordered": "{where} expects its calls in another order",
    "answer_removed": "{where} has no reference answer any more",
    "answer_shortened": "the reference answer of {where} was cut from {words} to {new}",
    "answer_changed": "the reference answer of {where} changed",
    "rubrics_removed": "{where} lost {rubrics} ({items})",
}


def _edit(data: Mapping[str, Any]) -> Prose:
    """One edit of a case's expectations."""
    kind, old, new = data["edit"], data.get("old"), data.get("new")
    return compose(
        _EDITS[kind],
        where=f"turn {data['turn']}" if data.get("turn") else "it",
        items=names(data.get("items", ()), data.get("count")),
        old=Name.shortened(old, 80) if isinstance(old, str) else str(old),
        new=Name.shortened(new, 80) if isinstance(new, str) else str(new),
        words=plural(data["old"], "word") if kind == "answer_shortened" else "",
        rubrics=plural(data["count"], "rubric") if kind == "rubrics_removed" else "",
    )


def source(f: View) -> str:
    """Where a criterion is configured."""
    if f["source"] == "default":
        return " (by ADK's defaults)"
    return f" ({f['source']})" if f["source"] else ""


def _criterion_loosened(f: View) -> Prose:
    option, old, new = f["option"], f["old"], f["new"]
    if f.get("removed"):
        entries = plural(f["count"], option.removesuffix("s"))
        what: Prose | str = joined([f"{entries} removed (", names(f["removed"], f["count"]), ")"], "")
    elif option == "threshold" and new is not None:
        then, now = numbers(old, new)
        what = f"threshold {'lowered' if new < old else 'raised'} {then} → {now}"
    elif option == "threshold":
        what = f"threshold {old:g} → none"
    else:
        what = f"{option} {_option_value(old)} → {_option_value(new)}"
    return f.fill("{name}{source}: {what}{merge}", what=what)


def _option_value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else str(value)


def _rule(f: View) -> Prose:
    criteria = joined([" for ", names(f["criteria"], f["total"])], "") if f.get("criteria") else ""
    eval_set = joined([" for the eval set ", Name.shortened(f["eval_set"], 80)], "") if f.get("eval_set") else ""
    return f.fill("{rule} {old} → {new}{criteria}{eval_set} ({file}){merge}", criteria=criteria, eval_set=eval_set)


def _stored_scores(words: str) -> Callable[[View], Prose]:
    def change(one: Mapping[str, Any]) -> str:
        if one.get("old") is None:
            return ""
        old, new = numbers(one["old"], one["new"]) if isinstance(one["old"], float) else (one["old"], one["new"])
        return f" {old} → {new}"

    def write(f: View) -> Prose:
        template = f"the stored baseline {words} {{scores:score}}: {{pairs}}"
        return f.fill(template, pairs=pairs(f["named"], f["scores"], change))

    return write


def _acceptance_added(f: View) -> Prose:
    names = joined([Name.shortened(name, _LONG_NAME) for name in (f.subject.case, f.subject.criterion) if name], " › ")
    why = f": {f['text']}" if f["text"] else " without a reason"
    ignored = "; gate.accept: ignore, so main's scores of it still count" if f["ignored"] else ""
    return joined(["accept.yaml accepts a change of ", names, why, ignored], "")


_AGENT_FIELDS: Final = {
    "path": "folder",
    "driver": "driver",
    "recording": "recording",
    "python": "interpreter",
    "env": "variable",
    "install_env": "variable of its installation",
}


def _agent_changed(f: View) -> Prose:
    old, new = (_agent_value(f[side]) for side in ("old", "new"))
    if f["field"] == "name":
        return f.fill("the agent {name}: its name was {old}", old=old)
    variable = joined([" ", Name.shortened(f["variable"], 80)], "") if f.get("variable") else ""
    what = joined([_AGENT_FIELDS[f["field"]], variable], "")
    return f.fill("the agent {name}: its {what} is now {new} (was {old})", what=what, old=old, new=new)


def _agent_value(value: Mapping[str, Any]) -> Prose | str:
    """``state`` says what a value is where it is no text: not set, or the job's own."""
    if value.get("state"):
        return {"unset": "not set", "job": "the job's own"}[value["state"]]
    return Name.shortened(value["text"], 80) if value["text"] else "none"


CHANGE_WRITERS: Final[Mapping[FindingCode, str | Callable[[View], Prose]]] = {
    FindingCode.SET_REMOVED: _set_removed,
    FindingCode.CASE_REMOVED: "case {case} was removed from {path:code}",
    FindingCode.CASES_REMOVED: "{cases:case} were removed from {path:code}: {case_names}",
    FindingCode.CASE_LOOSENED: _edited_case("expects less"),
    FindingCode.CASE_EDITED: _edited_case("was edited, so main's scores of it no longer count"),
    FindingCode.CASES_EDITED: "{cases:more case} in {path:code} changed likewise: {case_names}",
    FindingCode.CRITERION_REMOVED: "{name} is no longer scored in {path:code}{source}{merge}",
    FindingCode.CRITERION_LOOSENED: _criterion_loosened,
    FindingCode.RULE_LOOSENED: _rule,
    FindingCode.RULE_CHANGED: _rule,
    FindingCode.BASELINE_REMOVED: (
        "the stored baseline was removed, or cannot be read any more: {scores:score} of main are lost"
    ),
    FindingCode.BASELINE_SCORES_REMOVED: _stored_scores("loses"),
    FindingCode.BASELINE_SCORES_LOWERED: _stored_scores("is loosened for"),
    FindingCode.BASELINE_SCORES_THINNED: _stored_scores("rests on fewer attempts for"),
    FindingCode.ACCEPTANCE_ADDED: _acceptance_added,
    FindingCode.AGENT_CHANGED: _agent_changed,
    FindingCode.METRIC_CHANGED: lambda f: f.fill(
        "the metric function {function:code} ({file}) was {verb}{merge}", verb="removed" if f["removed"] else "edited"
    ),
}
"""What makes the sentence of each code."""
