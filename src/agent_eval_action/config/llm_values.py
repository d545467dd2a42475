"""Kinds of value about models: dollars, bounds per model, and prices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent_eval_action.config.values import Flaw, Kind, Refused, Where, integer, items_of
from agent_eval_action.source import did_you_mean

_MODEL = "gemini-2.5-flash"
EVERY_MODEL: Final = "*"
"""The key of a bound that holds for every model without one of its own."""

PRICE_KEYS: Final = ("input", "output", "cached_input")


def _dollars(value: Any, where: Where) -> float:
    try:
        number = float(value) if where.text else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise Refused(Flaw("must be an amount of USD like 2.50", value))
    return float(number)


USD: Final = Kind("number", {"type": "number", "exclusiveMinimum": 0}, _dollars)

_PER_MINUTE: Final = integer(1, 1_000_000_000)


def _rates(value: Any, where: Where) -> dict[str, int]:
    """One bound for every model, or a bound per model: a mapping, or ``MODEL=N`` as flags and inputs write it."""
    if where.text:
        items = items_of(value, where)
        value = items[0] if len(items) == 1 and "=" not in str(items[0]) else _of_text(items, where, f"{_MODEL}=600")
    if not isinstance(value, Mapping):
        return {EVERY_MODEL: _PER_MINUTE.read(value, where)}
    return _each(value, lambda bound: _PER_MINUTE.read(bound, where))


RATES: Final = Kind(
    "whole number, or one per model",
    {
        "anyOf": [
            dict(_PER_MINUTE.schema),
            {"type": "object", "additionalProperties": dict(_PER_MINUTE.schema)},
        ]
    },
    _rates,
)


def _prices(value: Any, where: Where) -> dict[str, dict[str, float]]:
    """USD per million tokens by model; in text ``MODEL=INPUT/OUTPUT`` or ``MODEL=INPUT/CACHED_INPUT/OUTPUT``."""
    if where.text:
        value = {model: _price_of_text(text) for model, text in _of_text(value, where, f"{_MODEL}=0.30/2.50").items()}
    if not isinstance(value, Mapping):
        raise Refused(Flaw("must map models to their price", value, hint=f"{_MODEL}: {{input: 0.30, output: 2.50}}"))
    return _each(value, _price)


_AMOUNT: Final = {"type": "number", "minimum": 0}
PRICES: Final = Kind(
    "mapping",
    {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": False,
            "required": ["input", "output"],
            "properties": dict.fromkeys(PRICE_KEYS, _AMOUNT),
        },
    },
    _prices,
)


def _price(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise Refused(Flaw("must be a price like {input: 0.30, output: 2.50}", value))
    flaws: list[Flaw] = [
        Flaw(f"unknown key {key!r}", at=(key,), hint=did_you_mean(str(key), PRICE_KEYS))
        for key in value
        if key not in PRICE_KEYS
    ]
    flaws += [Flaw(f"lacks `{key}`, in USD per million tokens") for key in PRICE_KEYS[:2] if key not in value]
    for key in PRICE_KEYS:
        amount = value.get(key, 0.0)
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            flaws.append(Flaw("must be USD per million tokens", amount, (key,)))
    if flaws:
        raise Refused(*flaws)
    return {key: float(value[key]) for key in PRICE_KEYS if key in value}


def _price_of_text(text: str) -> dict[str, Any]:
    parts: list[Any] = []
    for part in text.split("/"):
        try:
            parts.append(float(part))
        except ValueError:
            parts.append(part)
    names = {2: ("input", "output"), 3: ("input", "cached_input", "output")}.get(len(parts))
    if names is None:
        raise Refused(Flaw("must be like 0.30/2.50 (input/output)", text))
    return dict(zip(names, parts, strict=True))


def _of_text(value: Any, where: Where, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in [part for one in items_of(value, where) for part in items_of(one, where)]:
        model, equals, said = str(item).rpartition("=")
        if not equals or not model.strip():
            raise Refused(Flaw(f"must be like {example}", item))
        found[model.strip()] = said.strip()
    return found


def _each(value: Mapping[Any, Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    flaws: list[Flaw] = []
    for model, said in value.items():
        if not isinstance(model, str) or not model.strip():
            flaws.append(Flaw("is no name of a model", model))
            continue
        try:
            made[model] = read(said)
        except Refused as refused:
            flaws += [Flaw(flaw.message, flaw.value, (model, *flaw.at), flaw.hint) for flaw in refused.flaws]
    if flaws:
        raise Refused(*flaws)
    return made
