"""Rows of CSV, TSV and JSON Lines, one at a time: a table of any length takes the memory of a row.

A file is read anew for each pass over its rows. What is wrong with a row is a problem with the row's line.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic_core import from_json

from agent_eval_action.diagnostics.reader import Source, open_regular, refusal
from agent_eval_action.errors import AgentEvalError, Unreadable

TABLE_SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson")
MAX_TABLE_BYTES: Final = 1024 * 1024 * 1024
MAX_ROW_BYTES: Final = 16 * 1024 * 1024
_ROWS_FOR_COLUMNS: Final = 100
_BOMS: Final = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_AT: Final = re.compile(r" at line 1 column (\d+)$")
_DELIMITERS: Final = ",;\t"


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name."""
    return path.suffix.lower() in TABLE_SUFFIXES


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the line it begins in, and its values by column. Empty cells of CSV are left out."""

    line: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A file of rows. ``workspace`` is the folder that its real path must lie in."""

    path: Path
    workspace: Path | None = field(repr=False)

    @property
    def is_csv(self) -> bool:
        """Whether its cells are text; else each row is a JSON object."""
        return self.path.suffix.lower() in {".csv", ".tsv"}

    def source(self, error: type[AgentEvalError]) -> Source:
        """The file as one that was read; its value is this table. Raises ``error`` where no row can be read."""
        try:
            _ = self.columns
        except Unreadable as found:
            raise refusal(self.path, found, error) from None
        return Source(self.path, "", self, lambda _: 1)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names in a CSV's header; of JSON Lines the keys of the first rows."""
        if self.is_csv:
            with self._opened() as file:
                return self._header(_records(self, file))
        first = list(islice(self.rows(), _ROWS_FOR_COLUMNS))
        if not first:
            raise Unreadable(self.path, "is empty")
        return tuple(dict.fromkeys(key for row in first for key in row.values))

    def rows(self) -> Iterator[Row]:
        """Every row in file order. Raises Unreadable at a row that cannot be read."""
        with self._opened() as file:
            yield from self._csv_rows(file) if self.is_csv else self._json_rows(file)

    def _opened(self) -> BinaryIO:
        descriptor = open_regular(self.path, self.workspace, MAX_TABLE_BYTES)
        return open(descriptor, "rb", buffering=1 << 18)  # noqa: PTH123 - opens a descriptor

    def _csv_rows(self, file: BinaryIO) -> Iterator[Row]:
        records = _records(self, file)
        header = self._header(records)
        for line, cells in records:
            if len(cells) != len(header):
                raise self._uneven(line, cells, header)
            yield Row(line, {name: cell for name, cell in zip(header, cells, strict=True) if cell and name})

    def _uneven(self, line: int, cells: list[str], header: tuple[str, ...]) -> Unreadable:
        message = f"this row has {len(cells)} cells, the header has {len(header)}"
        hint = "put a text with a comma, a quote or a line break in double quotes, and write a quote in it twice"
        return Unreadable(self.path, message, line, hint=hint)

    def _header(self, records: Iterator[tuple[int, list[str]]]) -> tuple[str, ...]:
        line, names = next(records, (0, []))
        if not line:
            raise Unreadable(self.path, "is empty, or has no header: its first row names the columns")
        header = tuple(name.strip() for name in names)
        if not any(header):
            raise Unreadable(self.path, "has no header: its first row names the columns", line)
        twice = [name for name, count in Counter(header).items() if name and count > 1]
        if twice:
            raise Unreadable(self.path, "two columns have the same name", line, value=twice[0][:80])
        return header

    def _json_rows(self, file: BinaryIO) -> Iterator[Row]:
        for line, text in _lines(self.path, file):
            if not text.strip():
                continue
            try:
                value = from_json(text, allow_inf_nan=False)  # refuses deep nesting and lone surrogates as well
            except ValueError as error:
                why = _AT.sub(r" at column \1", str(error))
                raise Unreadable(self.path, f"this line is no JSON: {why}", line) from None
            if not isinstance(value, dict):
                hint = 'each line is an object: {"prompt": "...", "reference": "..."}'
                raise Unreadable(
                    self.path, "this line is no JSON object", line, value=json.dumps(value)[:80], hint=hint
                )
            item = value.get(
                "item"
            )  # a row of OpenAI's evals wraps its values, with the answer that was sampled beside
            yield Row(line, item if isinstance(item, dict) and value.keys() <= {"item", "sample"} else value)


def _records(table: Table, file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file that are not blank, each with the line it begins in."""
    csv.field_size_limit(MAX_ROW_BYTES)
    lines, begin = _CountedLines(table, file), 1
    reader = csv.reader(lines, delimiter="\t" if table.path.suffix.lower() == ".tsv" else lines.delimiter, strict=True)
    while True:
        begin = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            hint = "a quoted text begins and ends with a double quote, and a quote in it is written twice"
            what = "a quote is not closed" if "unexpected end" in str(error) else str(error)
            raise Unreadable(table.path, f"this row is no CSV: {what}", begin, hint=hint) from None
        if any(cells):
            yield begin, cells


class _CountedLines:
    """The lines of a file for the csv module, which counts none when it raises; ``number`` is that of the last."""

    def __init__(self, table: Table, file: BinaryIO) -> None:
        self._lines = _lines(table.path, file)
        self._first = next(self._lines, None)
        self.number = 0
        text = self._first[1] if self._first else ""
        self.delimiter = max(_DELIMITERS, key=text.count)

    def __iter__(self) -> _CountedLines:
        return self

    def __next__(self) -> str:
        first, self._first = self._first, None
        self.number, text = first or next(self._lines)
        return text


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Lines of UTF-8 with their numbers; every line end becomes a line feed."""
    number = 0
    while raw := file.readline(MAX_ROW_BYTES + 1):
        if not number:
            if raw.startswith(_BOMS):
                raise Unreadable(path, "is UTF-16 or UTF-32, not UTF-8", 1, hint="save the file as UTF-8")
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if len(raw) > MAX_ROW_BYTES:
            raise Unreadable(path, f"this row is larger than {MAX_ROW_BYTES // (1024 * 1024)} MB", number + 1)
        if b"\0" in raw:
            raise Unreadable(path, "holds a NUL character", number + 1)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{raw[error.start]:02x}"
            raise Unreadable(path, "is not UTF-8", number + 1, value=byte, hint="save the file as UTF-8") from None
        if "\r" not in text:
            number += 1
            yield number, text
            continue
        for line in _split(text):
            number += 1
            yield number, line


def _split(text: str) -> list[str]:
    """The lines of a text with carriage returns in it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    whole = [f"{line}\n" for line in lines[:-1]]
    return whole + ([lines[-1]] if lines[-1] else [])
