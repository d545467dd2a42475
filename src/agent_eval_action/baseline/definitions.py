"""What a criterion was, as records keep it: enough to say later in words what of it changed. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.results.history import DIGEST_LENGTH, Definition, kept_digest
from agent_eval_action.results.run_result import CriterionInfo, RunResult

_OPTION_LIMIT: Final = 200
_ENTRIES: Final = 20


def definition(info: CriterionInfo) -> Definition:
    """A criterion as records describe it."""
    return Definition(
        name=info.name,
        goal=info.goal,
        scoring_version=info.scoring_version,
        judge=info.judge[:_OPTION_LIMIT],
        options={name: _short(value) for name, value in sorted(info.options.items())},
    )


def definitions(result: RunResult) -> dict[str, Definition]:
    """Every criterion of a run by the digest a record keeps."""
    infos = sorted((info for owner in result.sets for info in owner.criteria), key=lambda info: info.digest)
    found = {kept_digest(info.digest): info for info in infos}
    return {digest: definition(info) for digest, info in found.items()}


def _short(value: Any) -> Any:
    """Small values as they are, long ones by their beginning and a digest of all: that they differ can be seen."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict) and len(value) <= _ENTRIES:
        return {str(name)[:_OPTION_LIMIT]: _short(item) for name, item in value.items()}
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if len(text) <= _OPTION_LIMIT:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    return f"{shorten(value, _OPTION_LIMIT // 4)} sha256:{digest}"


_UNKNOWN: Final = "the criterion's options changed since the baseline"
_JUDGE: Final = ("judge_model", "judge_model_options.judge_model", "judge")
_PROMPT: Final = ("prompt_version", "judge_prompt")
_LAST: Final = ("scoring version", "goal")
_SHOWN: Final = 3


def describe_definition_change(old: Definition | None, new: Definition | None) -> str:
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
