"""What makes a field of the settings an option: how flags, inputs and docs show it, and which values are looser."""

# No `from __future__ import annotations`: pydantic would compile every annotation again at each start of the command.

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, Field

Scope = Literal["run", "agent", "command"]
Topic = Literal[
    "What to run",
    "The agent",
    "How it runs",
    "Limits",
    "What blocks",
    "Baseline",
    "Models that judge",
    "Reports and CI",
]
TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
"""The topics in the order of ``--help``."""


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """How flags, inputs, agent-eval.yaml and the docs show a field, besides its description.

    ``shown`` is the default as the docs write it; ``{}`` stands for the field's default.
    ``scope``: *run* options are set once, *agent* options for each agent (also in an entry of ``agents``), *command*
    options for one invocation, never in a file. ``name`` and ``key`` are set if they do not follow from the field.
    ``switch`` is a flag without a value that turns the option off. ``action_default`` is the expression that fills the
    input on GitHub by default; a value there would win over the file.
    ``strict`` is the default under ``strict: true``; None: unchanged.

    ``of``: whose value applies when a change is tested; None: the *base* commit's for run options, else the
    *change*'s. ``may_loosen``: another value may demand less of a run, although values have no order of strictness.
    ``describes_agent``: differences in this option are reported for each agent. ``decides_answers``: the value can
    affect an agent's answers, so ``--resume`` keeps no attempts made with another value.
    ``repeats_run``: the flag is part of the command shown to repeat a run. ``topic``: where ``--help`` shows the
    option, "" for the topic of its section; ``-h`` shows only ``common`` options.
    """

    shown: str = "{}"
    scope: Scope = "run"
    name: str = ""
    key: str = ""
    metavar: str = ""
    repeatable: bool = False
    has_flag: bool = True
    switch: str = ""
    action_default: str = ""
    strict: Any = None
    of: Literal["base", "change"] | None = None
    may_loosen: bool = False
    describes_agent: bool = False
    decides_answers: bool = False
    repeats_run: bool = False
    topic: Topic | Literal[""] = ""
    common: bool = False


INFO: Final = "option"
"""The key of a field's OptionInfo in its ``json_schema_extra``."""


def option(default: Any, description: str, shown: str = "{}", scope: Scope = "run", **info: Any) -> Any:
    """A field that is an option: default, description in one sentence, and fields of OptionInfo."""
    return Field(default, description=description, json_schema_extra={INFO: OptionInfo(shown, scope, **info)})  # type: ignore[dict-item]  # no schema is made of the models themselves


@dataclass(frozen=True, slots=True)
class Looser:
    """Marks a field as a rule of the gate and says which values are looser.

    Choices later in ``strictest_first`` are looser. Without choices, numbers ``when`` ("higher" or "lower") than the
    old one are looser, and so is None, which means no limit.
    """

    strictest_first: tuple[Any, ...] = ()
    when: Literal["higher", "lower"] = "higher"


def is_rule(model: type[BaseModel], field: str) -> bool:
    """Whether the gate's strictness depends on this field."""
    return _looser(model, field) is not None


def is_looser(model: type[BaseModel], field: str, old: Any, new: Any) -> bool:
    """Whether the new value of a rule is looser than the old one; False for fields that are not rules."""
    looser = _looser(model, field)
    if looser is None or old == new:
        return False
    if order := looser.strictest_first:
        return order.index(new) > order.index(old)
    if looser.when == "lower":
        return bool(new < old)
    return old is not None and (new is None or bool(new > old))


def _looser(model: type[BaseModel], field: str) -> Looser | None:
    metadata = model.model_fields[field].metadata if field in model.model_fields else ()
    return next((mark for mark in metadata if isinstance(mark, Looser)), None)
