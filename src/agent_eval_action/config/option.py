"""What an option is: its spellings, kind, default and sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from agent_eval_action.config.values import Kind

Scope = Literal["run", "agent", "command"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    ``name`` is the key of ``flags`` in ``settings.resolve``. ``key`` is its dotted place in
    agent-eval.yaml, None when it has none. ``scope``: *run* is said once; *agent* is said for every
    agent (also in an entry of ``agents``); *command* is about one invocation and not for a file.
    ``default`` is what Settings has without it, ``shown`` how the docs write that.
    ``switch`` is a flag without a value that turns the option off. ``action_default`` is the expression
    that fills the input on GitHub where nobody gives it; a value there would win over the file.
    ``strict`` is what the option is under ``strict: true`` where nobody gives it; None: as without.
    """

    name: str
    kind: Kind
    help: str
    key: str | None
    default: Any = None
    shown: str = ""
    scope: Scope = "run"
    metavar: str = "TEXT"
    repeatable: bool = False
    has_flag: bool = True
    switch: str = ""
    action_default: str = ""
    strict: Any = None

    @property
    def flag(self) -> str | None:
        """As typed at the command; None where a positional argument says it."""
        if self.switch:
            return self.switch
        return "--" + self.name.replace("_", "-") if self.has_flag else None

    @property
    def input(self) -> str:
        """The input of the Action."""
        return self.name.replace("_", "-")

    @property
    def variables(self) -> tuple[str, str]:
        """The runner's spelling, whose dashes stay, and the one a shell can set."""
        return f"INPUT_{self.input.upper()}", f"INPUT_{self.name.upper()}"
