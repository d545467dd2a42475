"""The sentences on how a change relaxes the gate: one writer for each code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.reports.formatting import Name, Prose, compose, joined, names, numbers, pairs, plural, verb
from agent_eval_action.results.findings import FindingCode

if TYPE_CHECKING:
    from agent_eval_action.reports.messages import Data, Fields

LONG_NAME: Final = 120


def _set_removed(f: Fields) -> Prose:
    many = "its case is" if f["cases"] == 1 else f"its {plural(f['cases'], 'case')} are"
    return f.fill("{path:code} is no longer run: {many} not measured ({case_names})", many=many)


def _edited_case(what: str) -> Callable[[Fields], Prose]:
    def write(f: Fields) -> Prose:
        more = f"; and {f['more']:,} more edits" if f.get("more") else ""
        edits = joined([_edit(edit) for edit in f["edits"]], "; ")
        return f.fill(f"case {{case}} in {{path:code}} {what}: {{edits}}{more}", edits=edits)

    return write


_EDITS: Final = {
    "definition": "its definition changed",
    "recorded": "its turns are recorded, and the agent is not asked any more",
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


def _edit(data: Data) -> Prose:
    """Describe one edit of a case's expectations."""
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


def criterion_source(f: Fields) -> str:
    """Return where a criterion is configured, in parentheses."""
    where = "by ADK's defaults" if f["source"] == "default" else f["source"]
    return f" ({where})" if where else ""


def _criterion_loosened(f: Fields) -> Prose:
    option, old, new = f["option"], f["old"], f["new"]
    if f.get("removed"):
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
    criteria = joined([" for ", names(f["criteria"], f["total"])], "") if f.get("criteria") else ""
    eval_set = joined([" for the eval set ", Name.shortened(f["eval_set"], 80)], "") if f.get("eval_set") else ""
    moved = f.fill(", where {case_names} {are} now", are=verb(f["cases"], "is", "are")) if f.get("cases") else ""
    template = "{rule} {old} → {new}{criteria}{eval_set}{moved} ({file}){merge}"
    return f.fill(template, criteria=criteria, eval_set=eval_set, moved=moved)


def _stored_scores(words: str) -> Callable[[Fields], Prose]:
    def change(score: Data) -> str:
        if score.get("old") is None:
            return ""
        old, new = score["old"], score["new"]
        if isinstance(old, float):
            old, new = numbers(old, new)
        return f" {old} → {new}"

    def write(f: Fields) -> Prose:
        template = f"the stored baseline {words} {{scores:score}}: {{pairs}}"
        return f.fill(template, pairs=pairs(f["named"], f["scores"], change))

    return write


def _acceptance_added(f: Fields) -> Prose:
    why = f": {f['text']}" if f["text"] else " without a reason"
    ignored = "; gate.accept: ignore, so main's scores of it still count" if f["ignored"] else ""
    return joined(["accept.yaml accepts a change of ", _entry_name(f), why, ignored], "")


def _quarantine_added(f: Fields) -> Prose:
    ignored = "; gate.accept: ignore, so it counts all the same" if f["ignored"] else ""
    words = f" until {f['until']} (owner {f['owner']}): {f['text']}{ignored}"
    return joined(["accept.yaml quarantines ", _entry_name(f), words], "")


def _entry_name(f: Fields) -> Prose:
    return joined([Name.shortened(name, LONG_NAME) for name in (f.subject.case, f.subject.criterion) if name], " › ")


_AGENT_FIELDS: Final = {
    "path": "folder",
    "url": "address",
    "headers": "header",
    "python": "interpreter",
    "env": "variable",
    "install_env": "variable of its installation",
}


def _agent_changed(f: Fields) -> Prose:
    old, new = (_agent_value(f[side]) for side in ("old", "new"))
    if f["field"] == "name":
        return f.fill("the agent {name}: its name was {old}", old=old)
    variable = joined([" ", Name.shortened(f["variable"], 80)], "") if f.get("variable") else ""
    what = joined([_AGENT_FIELDS.get(f["field"], f["field"]), variable], "")
    return f.fill("the agent {name}: its {what} is now {new} (was {old})", what=what, old=old, new=new)


def _agent_value(value: Data) -> Prose | str:
    """Return a value's text; ``state`` marks a value that is not set or is the job's own."""
    if value.get("state"):
        return {"unset": "not set", "job": "the job's own"}[value["state"]]
    return Name.shortened(value["text"], 80) if value["text"] else "none"


CHANGE_WRITERS: Final[Mapping[FindingCode, str | Callable[[Fields], Prose]]] = {
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
    FindingCode.QUARANTINE_ADDED: _quarantine_added,
    FindingCode.AGENT_CHANGED: _agent_changed,
    FindingCode.METRIC_CHANGED: lambda f: f.fill(
        "the metric function {function:code} ({file}) was {verb}{merge}", verb="removed" if f["removed"] else "edited"
    ),
}
