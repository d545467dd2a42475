"""Help and usage errors: examples, options by topic; ``-h`` shows the most used options, ``--help`` all.

Help is plain text: importing rich takes longer than everything else that ``--help`` does.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from agent_eval_action.errors import UsageError

if TYPE_CHECKING:
    from agent_eval_action.config.options import Option

_NARROWEST, _WIDEST = 60, 100
_COLUMN: Final = 28
_DEFAULT: Final = " [default: "
_SHORT_DEFAULT: Final = 24
_OTHERS: Final = "Options"
_BRIEF: Final = "agent_eval.brief"

Rows = list[tuple[str, str]]


class HelpfulCommand(TyperCommand):
    """A command whose epilog holds its examples, one a line, each with an explanation after ``#``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own context
        ctx.meta[_BRIEF] = "-h" in args and "--help" not in args
        with _convert_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def get_help(self, ctx: typer.Context) -> str:  # type: ignore[override]  # typer's own context
        """Return the full help, or with ``-h`` the short one."""
        table, sections = _table(), dict[str, Rows]()
        params = self.get_params(ctx)
        options = {param.name: table[param.name] for param in params if param.name in table}
        less_used = {name for name, option in options.items() if not option.info.common}
        brief = bool(less_used) and bool(ctx.meta.get(_BRIEF))
        for param in params:
            option = options.get(param.name)
            topic = (option.info.topic if option else getattr(param, "rich_help_panel", None)) or _OTHERS
            row = None if brief and param.name in less_used else _row(param, ctx, brief=brief)
            if row is not None:
                sections.setdefault(topic, []).append(row)
        if less_used:
            sections[_OTHERS][-1] = ("-h, --help", "-h: the most used options; --help: all of them.")
        info = sys.modules.get("agent_eval_action.config.option_info")
        order = (*(info.TOPICS if info is not None else ()), *sections)
        found = sorted(sections.items(), key=lambda section: (section[0] == _OTHERS, order.index(section[0])))
        more = f"\n\n{len(less_used)} more options: {ctx.command_path} --help, or docs/config.md" if brief else ""
        return _page(self, ctx, found) + more


class HelpfulGroup(TyperGroup):
    """A group that lists each command with the whole first sentence of its help."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own context
        with _convert_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]  # typer's own context
        """Return the named command. Raises UsageError, with a suggestion, if there is none."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            from agent_eval_action.diagnostics.suggestions import closest

            found = closest(args[0], self.commands, cutoff=0.6)
            hint = f"did you mean `{found}`?" if found else f"{ctx.command_path} -h lists the commands"
            raise UsageError(f"there is no command {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: typer.Context) -> str:  # type: ignore[override]  # typer's own context
        """Return the commands by panel, then the options."""
        sections: dict[str, Rows] = {}
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(panel, []).append((name, _first_sentence(command.help or "")))
        options = [row for param in self.get_params(ctx) if (row := _row(param, ctx, brief=False))]
        return _page(self, ctx, [*sections.items(), (_OTHERS, options)])


@contextmanager
def _convert_usage_errors(ctx: typer.Context) -> Iterator[None]:
    """Convert typer's usage errors into UsageError, with a suggestion for a wrong flag."""
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if not hasattr(error, "format_message") or not isinstance(message, str):
            raise
        hint = None
        if name := getattr(error, "option_name", None):
            from agent_eval_action.diagnostics.suggestions import did_you_mean

            if hasattr(error, "possibilities"):
                flags = [flag for param in ctx.command.params for flag in param.opts]
                message, hint = f"there is no option {name}", did_you_mean(name, flags)
        else:
            message = error.format_message()
        message = message[:1].lower() + message[1:].rstrip(".")
        raise UsageError(message, hint=hint or f"{ctx.command_path} -h shows how it is used") from error


def _page(command: TyperCommand | TyperGroup, ctx: typer.Context, sections: Iterable[tuple[str, Rows]]) -> str:
    width = max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST)) if sys.stdout.isatty() else 80
    usage = f"{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}"
    parts = [f"{_heading('Usage:')} {usage}", *_fold(inspect.cleandoc(command.help or ""), width)]
    if command.epilog:
        examples = [line.partition("  # ") for line in inspect.cleandoc(command.epilog).splitlines()]
        parts += ["", _heading("Examples"), *_two_columns([(line, says) for line, _, says in examples], width, 58)]
    for title, rows in sections:
        if rows:
            parts += ["", _heading(title), *_two_columns(rows, width)]
    return "\n".join([*parts[:1], "", *parts[1:]])


def _row(param: Any, ctx: typer.Context, *, brief: bool) -> tuple[str, str] | None:
    if isinstance(param, TyperArgument):
        return param.metavar or param.name or "", param.help or ""
    record = param.get_help_record(ctx)
    if record is None:
        return None
    name, text = record
    says, mark, default = text.partition(_DEFAULT)
    if brief:
        says = _first_sentence(says).partition(";")[0].partition(":")[0]
        default = default if len(default) <= _SHORT_DEFAULT else ""
        return name, f"{says.rstrip('.')} [{default}" if default else says.rstrip(".")
    return name, f"{says}{mark}{default}"


def _first_sentence(text: str) -> str:
    sentence, stop, _ = " ".join(text.split()).partition(". ")
    return sentence + stop.rstrip()


def _two_columns(rows: Rows, width: int, widest: int = _COLUMN) -> Iterator[str]:
    column = min(max((len(name) for name, text in rows if text), default=0), widest) + 4
    for name, text in rows:
        lines = _fold(text, width - column)
        if len(name) > column - 4 or not text:
            yield f"  {name}"
        else:
            yield f"  {name:<{column - 2}}{lines.pop(0)}".rstrip()
        yield from (" " * column + line for line in lines)


def _fold(text: str, width: int) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def _heading(text: str) -> str:
    return typer.style(text, bold=True)


def _table() -> Mapping[str, Option]:
    """Return the option table if it was imported, which only commands with such options do."""
    module = sys.modules.get("agent_eval_action.config.options")
    return module.BY_NAME if module is not None else {}
