"""Typer parameters made from the option table, so that a flag cannot exist beside it or drift from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from agent_eval_action.config.options import OPTIONS, Option

Command = Callable[..., None]


def with_options(*, only: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Add the options of the table that have a flag (or ``only`` these) as keywords; values arrive as text."""
    chosen = [option for option in OPTIONS if option.info.has_flag and (not only or option.name in only)]

    def decorate(command: Command) -> Command:
        def wrapped(**given: Any) -> None:
            names = {option.name for option in chosen}
            # a switch turns its option off; the other flags' values are text already
            said = {name: "false" if value is True else value for name, value in given.items()}
            flags = {name: value for name, value in said.items() if name in names and value not in (None, [], ())}
            command(flags=flags, **{name: value for name, value in given.items() if name not in names})

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [*(p.replace(kind=keyword) for p in own), *(_parameter(option) for option in chosen)]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.__doc__ = command.__doc__
        wrapped.__name__ = command.__name__
        return wrapped

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    text = option.help + (f" [default: {option.shown.replace('`', '')}]" if option.shown else "")
    metavar = None if option.info.switch else option.metavar
    info = typer.Option(option.flag, help=_switched(option) or text, metavar=metavar, show_default=False)
    kind: Any = list[str] | None if option.info.repeatable else bool | None if option.info.switch else str | None
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
    )


def _switched(option: Option) -> str:
    """The sentence of a flag that turns its option off."""
    return f"Turn off {option.key}. {option.help}" if option.info.switch else ""
