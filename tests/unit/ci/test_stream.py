"""What reaches a step's log through any printer: lines that are no commands, and ours that are."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from agent_eval_action.ci.github_actions import command
from agent_eval_action.ci.log import GuardedStream, is_log
from support.runner_log import Command, commands


@pytest.fixture
def under() -> io.StringIO:
    return io.StringIO()


def guarded(under: io.StringIO) -> GuardedStream:
    return GuardedStream(under, lambda text: text.replace("hunter22", "***"))


def read(under: io.StringIO) -> list[Command]:
    return commands(under.getvalue().encode())


def test_a_command_printed_in_pieces_is_none(under: io.StringIO) -> None:
    stream = guarded(under)
    for piece in (" ", ":", ":err", "or::x", "\n", "a #", "#", "[group]b\n"):
        stream.write(piece)
        stream.flush()
    assert not read(under)
    assert len(under.getvalue().splitlines()) == 2


def test_a_line_that_never_ends_is_written_at_the_end_and_is_no_command(under: io.StringIO) -> None:
    stream = guarded(under)
    stream.write("\r::error::x")
    stream.end_line()
    assert not read(under)
    assert "error" in under.getvalue()


def test_text_that_a_table_folds_begins_no_line_with_a_command(under: io.StringIO) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("reason", overflow="fold")
    table.add_row("x" * 20 + "::stop-commands::t")
    plain = io.StringIO()
    Console(file=plain, width=20).print(table)
    assert read(plain), "the fold is what makes it a command: without the guard this is one"
    Console(file=guarded(under), width=20).print(table)
    assert not read(under)


def test_our_commands_stand_on_lines_of_their_own(under: io.StringIO) -> None:
    stream = guarded(under)
    stream.write("half a line")
    stream.command(command("group", "phase"))
    stream.write("inside\n")
    stream.command(command("endgroup"))
    assert [one.name for one in read(under)] == ["group", "endgroup"]
    assert under.getvalue().startswith("half a line\n::group::")


def test_secrets_are_taken_out_also_where_they_were_printed_in_pieces(under: io.StringIO) -> None:
    stream = guarded(under)
    stream.write("the password is hun")
    stream.flush()
    stream.write("ter22\n")
    assert under.getvalue() == "the password is ***\n"


def test_a_long_line_without_an_end_is_not_kept_for_ever(under: io.StringIO) -> None:
    stream = guarded(under)
    for _ in range(5):
        stream.write("y" * (1 << 18))
    assert len(under.getvalue()) > 1 << 20


def test_what_no_encoding_can_carry_ends_nothing() -> None:
    raw = io.BytesIO()
    stream = GuardedStream(io.TextIOWrapper(raw, encoding="ascii"), str)
    stream.write("\ud800 ü\n")
    stream.flush()
    assert raw.getvalue() == b"\\ud800 \\xfc\n"


def test_a_file_is_no_log(tmp_path: Path) -> None:
    with (tmp_path / "data").open("w") as file:
        assert not is_log(file)
    assert is_log(io.StringIO())
    assert sys.stderr is not None
