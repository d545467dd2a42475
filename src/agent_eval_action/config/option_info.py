"""How a field of the configuration is an option: its place in flags, inputs and docs, and which value is looser."""

# Without annotations as text: pydantic would compile each one again, at every start of the command.

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
"""In the order of ``--help``."""


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """How flags, inputs, agent-eval.yaml and the docs show a field, beside its description.

    ``shown`` is how the docs write the default, in which ``{}`` is the field's own.
    ``scope``: *run* is set once; *agent* is set for every agent (also in an entry of ``agents``); *command*
    concerns one invocation and has no place in a file. ``name`` and ``key`` are spelt out where they do not follow
    from the field. ``switch`` is a flag without a value that turns the option off. ``action_default`` is the
    expression that fills the input on GitHub by default; a value there would win over the file.
    ``strict`` is the default under ``strict: true``; None: the same as without.

    ``of``: whose value holds on an event of a change; None: for options of the run the *base* commit's, for others
    the *change*'s own. ``may_loosen``: another value may demand less of a run, though no order of strictness says so.
    ``describes_agent``: what a change makes different here is reported for each agent. ``decides_answers``: with
    another value an agent may answer differently, so ``--resume`` keeps no attempt made with another one.
    ``repeats_run``: the flag is part of the command that is shown to repeat a run. ``topic`` is where ``--help`` shows
    it, "" for that of its section; ``common`` options are in ``-h`` too.
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
"""Where a field's OptionInfo is, in its ``json_schema_extra``."""


def option(default: Any, description: str, shown: str = "{}", scope: Scope = "run", **info: Any) -> Any:
    """A field that is an option: its default, one sentence, and the fields of OptionInfo."""
    return Field(default, description=description, json_schema_extra={INFO: OptionInfo(shown, scope, **info)})  # type: ignore[dict-item]  # no schema is made of the models themselves


@dataclass(frozen=True, slots=True)
class Looser:
    """Marks a field as a rule: a choice that stands later in ``strictest_first`` demands less of a run.

    Without choices a number that is ``when`` the old one does, and None, which is no limit.
    """

    strictest_first: tuple[Any, ...] = ()
    when: Literal["higher", "lower"] = "higher"


def is_rule(model: type[BaseModel], field: str) -> bool:
    """Whether the gate's strictness depends on a field of a model."""
    return _looser(model, field) is not None


def is_looser(model: type[BaseModel], field: str, old: Any, new: Any) -> bool:
    """Whether the new value of a rule demands less of a run than the old one; False for a field that is no rule."""
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
