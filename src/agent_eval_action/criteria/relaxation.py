"""Whether a changed option of a criterion asks for less than it did. Pure.

An option whose direction nobody declares may ask for less whenever it changes: another judge, another pattern,
another tolerance. A criterion declares what it knows of its options in ``Criterion.relaxed_when``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Relaxed = Callable[[Any, Any], bool]
"""Whether the second value of an option asks for less than the first."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An option that changed so that less is asked, or so that nobody can say. ``lost``: entries that are gone."""

    option: str
    old: Any
    new: Any
    lost: tuple[str, ...] = ()


def lower(old: Any, new: Any) -> bool:
    """A smaller number asks for less."""
    return not (_is_number(old) and _is_number(new)) or new < old


def later_in(*strictest_first: str) -> Relaxed:
    """A value that stands later in this list asks for less."""

    def relaxed(old: Any, new: Any) -> bool:
        known = old in strictest_first and new in strictest_first
        return not known or strictest_first.index(new) > strictest_first.index(old)

    return relaxed


def becomes(value: Any) -> Relaxed:
    """Only this value asks for less."""
    return lambda old, new: old != value and new == value


def never(old: Any, new: Any) -> bool:
    """Neither value asks for less."""
    del old, new
    return False


def relaxations(
    old: Mapping[str, Any], new: Mapping[str, Any], declared: Mapping[str, Relaxed], *, free: bool = False
) -> tuple[Relaxation, ...]:
    """Every option that asks for less in ``new``; one inside another is ``judge_model_options.num_samples``.

    A side that records no option at all says nothing of them, as another tool's results; with ``free`` options,
    which may be given or not, it has none.
    """
    if not free and not (old and new):
        return ()
    then, now = _flat(old), _flat(new)
    found = []
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if before == after or (name in declared and not declared[name](before, after)):
            continue
        if isinstance(before, list | tuple) and isinstance(after, list | tuple):
            if lost := _lost(before, after):
                found.append(Relaxation(name, before, after, lost))
        else:
            found.append(Relaxation(name, before, after))
    return tuple(found)


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with those inside them; ``weights`` and a judge's own configuration stay whole."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "judge_model_options" and isinstance(value, Mapping):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found


def _lost(old: Sequence[Any], new: Sequence[Any]) -> tuple[str, ...]:
    """Entries that are gone, by what they say; one more entry asks for more."""
    kept = {_text(entry) for entry in new}
    return tuple(sorted(text for text in map(_text, old) if text not in kept))


def _text(entry: Any) -> str:
    content = entry.get("rubric_content") if isinstance(entry, Mapping) else None
    text = content.get("text_property") if isinstance(content, Mapping) else None
    return text if isinstance(text, str) else json.dumps(entry, sort_keys=True, default=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
