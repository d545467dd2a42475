"""How two definitions of a criterion differ, in words a report can show. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_eval_action.model.history import Definition
from agent_eval_action.source import shorten

_UNKNOWN: Final = "the criterion's options changed since the baseline"
_JUDGE: Final = ("judge_model", "judge_model_options.judge_model", "judge")
_SHOWN: Final = 3


def told(old: Definition | None, new: Definition | None) -> str:
    """``judge gemini-2.5-flash → gemini-3-flash``; a plain sentence where the old definition is not kept."""
    if old is None or new is None:
        return _UNKNOWN
    before, after = dict(_flat(old.options)), dict(_flat(new.options))
    parts = [
        _changed(_word(name), before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys(), key=lambda name: (name not in _JUDGE, name))
        if before.get(name) != after.get(name)
    ]
    if old.judge != new.judge and (judged := _changed("judge", old.judge or None, new.judge or None)) not in parts:
        parts.insert(0, judged)
    if old.scoring_version != new.scoring_version:
        parts.append(f"scoring version {old.scoring_version} → {new.scoring_version}")
    if old.goal != new.goal:
        parts.append(f"goal {old.goal} → {new.goal}")
    more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return ", ".join(parts[:_SHOWN]) + more if parts else _UNKNOWN


def _changed(name: str, old: Any, new: Any) -> str:
    before, after = _value(old), _value(new)
    return f"{name} {before} → {after}" if before != after else f"{name} changed"


def _flat(options: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _word(name: str) -> str:
    if name in _JUDGE:
        return "judge"
    return "judge prompt" if name.rpartition(".")[2] in ("prompt_version", "judge_prompt") else name


def _value(value: Any) -> str:
    return "none" if value is None else value[:60] if isinstance(value, str) else shorten(value, 60)
