"""The tables of options and inputs as Markdown, for docs/config.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_eval_action.config.options import NO_OPTIONS, OPTIONS, Option
from tools.action_files import HOST

HEADER: Final = "| key | flag | input | value | default | |\n|---|---|---|---|---|---|"


def option_table(options: Iterable[Option] = OPTIONS) -> str:
    """A row per option: key in the file, flag, input, kind of value, default, sentence."""
    return "\n".join([HEADER, *(_row(option) for option in options)])


def input_table() -> str:
    """A row per input of the actions that is no option."""
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
