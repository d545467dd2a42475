"""Generates, from the option table, the inputs of action.yml and host/action.yml, and the tables of docs/config.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_eval_action.config.options import NO_OPTIONS, OPTIONS, ActionInput, Option

HOST: Final = (
    ActionInput(
        "tool-python",
        "The Python, 3.11 or newer, that agent-eval itself runs on: a version or a path; "
        "never the agent's. Default: uv finds one, or downloads 3.13.",
    ),
    ActionInput(
        "tool-index",
        "Package index that agent-eval itself is installed from, where PyPI is not reached. "
        "Default: `UV_DEFAULT_INDEX`, else PyPI.",
    ),
)
"""Inputs of host/action.yml only, which installs the tool when the step runs."""


def inputs_yaml(*, host: bool = False) -> str:
    """Return the entries of ``inputs:``."""
    entries: list[tuple[str, str, str]] = [
        (option.input, option.help + (f" Default: {option.shown}." if option.shown else ""), option.info.action_default)
        for option in OPTIONS
    ]
    own: Iterable[ActionInput] = (*NO_OPTIONS, *(HOST if host else ()))
    entries += [(item.name, item.help, item.default) for item in own]
    return "".join(_entry(*entry) for entry in entries)


def inputs_env() -> str:
    """Return the ``env`` of a composite action's step, indented, which passes the inputs to the command."""
    names = [*(option.input for option in OPTIONS), *(item.name for item in NO_OPTIONS)]
    return "".join(f"        INPUT_{name.upper().replace('-', '_')}: ${{{{ inputs.{name} }}}}\n" for name in names)


def _entry(name: str, description: str, default: str) -> str:
    lines = [f"  {name}:", f"    description: {_quoted(description)}"]
    if default:
        lines.append(f"    default: {default}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


HEADER: Final = "| key | flag | input | value | default | |\n|---|---|---|---|---|---|"


def option_table(options: Iterable[Option] = OPTIONS) -> str:
    """Return a row per option: key in the file, flag, input, type, default, description."""
    return "\n".join([HEADER, *(_row(option) for option in options)])


def input_table() -> str:
    """Return a row for each action input that is not an option."""
    rows = [f"| `{item.name}` | {item.help} |" for item in NO_OPTIONS]
    rows += [f"| `{item.name}` (host) | {item.help} |" for item in HOST]
    return "\n".join(["| input | |\n|---|---|", *rows])


def _row(option: Option) -> str:
    keys = f"`{option.key}`" if option.key else "–"
    if option.name == "agent":
        keys = "`agent` or `agents`"
    cells = (
        keys + (" (a)" if option.info.scope == "agent" else ""),
        f"`{option.flag}`" if option.flag else "arguments" if option.name == "evals" else "–",
        f"`{option.input}`",
        option.value_type.label,
        option.shown or "–",
        option.help,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
