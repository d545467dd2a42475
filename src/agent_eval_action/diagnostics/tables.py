"""Read CSV, TSV and JSON Lines row by row, so that memory does not grow with the table.

Each pass over the rows reads the file again. Problems with a row have the row's line.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic_core import from_json

from agent_eval_action.diagnostics.reader import Source, decode, open_regular, refusal
from agent_eval_action.errors import EvalFileError, Unreadable

TABLE_SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson")
MAX_TABLE_BYTES: Final = 1024 * 1024 * 1024
MAX_ROW_BYTES: Final = 16 * 1024 * 1024
_AT: Final = re.compile(r" at line 1 column (\d+)$")
_DELIMITERS: Final = ",;\t"
_QUOTING: Final = "put a text with a comma, a quote or a line break in double quotes, and write a quote in it twice"


def is_table(path: Path) -> bool:
    """Whether a file's suffix is that of a table."""
    return path.suffix.lower() in TABLE_SUFFIXES


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the line where it begins, and its values by column, without empty CSV cells."""

    line: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A file of rows. ``workspace``: the folder that must contain its real path."""

    path: Path
    workspace: Path | None = field(repr=False)

    @property
    def is_csv(self) -> bool:
        """Whether cells are text; otherwise each row is a JSON object."""
        return self.path.suffix.lower() in {".csv", ".tsv"}

    def delimiter(self, header: str) -> str:
        """What separates the cells of a CSV file with this first line."""
        return "\t" if self.path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=header.count)

    def source(self) -> Source:
        """A Source whose value is this table. Raises EvalFileError if the columns cannot be read."""
        try:
            _ = self.columns
        except Unreadable as found:
            raise refusal(self.path, found, EvalFileError) from None
        return Source(self.path, "", self, lambda _: 1)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names in a CSV's header, or the keys of all JSON Lines rows, since exporters may omit nulls."""
        if self.is_csv:
            with self._open() as file:
                return self._header(_records(self, file))
        names, read = dict[str, None](), False
        try:
            for row in self.rows():
                read = True
                names.update(dict.fromkeys(row.values))
        except Unreadable:
            if not read:  # else who reads the rows says it, after what is wrong with those before
                raise
        if not read:
            raise Unreadable(self.path, "is empty")
        return tuple(names)

    def rows(self) -> Iterator[Row]:
        """All rows in file order. Raises Unreadable at a row that cannot be read."""
        with self._open() as file:
            yield from self._csv_rows(file) if self.is_csv else self._json_rows(file)

    def _open(self) -> BinaryIO:
        descriptor = open_regular(self.path, self.workspace, MAX_TABLE_BYTES)
        return open(descriptor, "rb", buffering=1 << 18)  # noqa: PTH123 - opens a descriptor

    def _csv_rows(self, file: BinaryIO) -> Iterator[Row]:
        records = _records(self, file)
        header = self._header(records)
        for line, cells in records:
            if len(cells) != len(header):
                message = f"this row has {len(cells)} cells, the header has {len(header)}"
                raise Unreadable(self.path, message, line, hint=_QUOTING)
            yield Row(line, {name: cell for name, cell in zip(header, cells, strict=True) if cell and name})

    def _header(self, records: Iterator[tuple[int, list[str]]]) -> tuple[str, ...]:
        line, names = next(records, (None, []))
        header = tuple(name.strip() for name in names)
        if line is None:
            raise Unreadable(self.path, "is empty, or has no header: its first row names the columns")
        if not any(header):
            raise Unreadable(self.path, "has no header: its first row names the columns", line)
        if twice := [name for name, count in Counter(header).items() if name and count > 1]:
            raise Unreadable(self.path, "two columns have the same name", line, value=twice[0][:80])
        return header

    def _json_rows(self, file: BinaryIO) -> Iterator[Row]:
        for line, text in enumerate(_lines(self.path, file), 1):
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
            yield Row(line, row_values(value))


@dataclass(frozen=True)
class JsonRows(Table):
    """The objects of a JSON list that was read with the whole file."""

    whole: Source = field(repr=False)

    def rows(self) -> Iterator[Row]:
        """All objects of the list. Raises Unreadable at an entry that is not an object."""
        for index, value in enumerate(self.whole.value):
            line = self.whole.line((index,)) or 1
            if not isinstance(value, dict):
                raise Unreadable(self.path, "this row is no JSON object", line, value=json.dumps(value)[:80])
            yield Row(line, row_values(value))

    @classmethod
    def of_list(cls, whole: Source) -> Source:
        """Turn a file whose value is a list into a table. Raises EvalFileError if its columns cannot be read."""
        return replace(cls(whole.path, None, whole).source(), warnings=whole.warnings)


def row_values(row: dict[str, Any]) -> dict[str, Any]:
    """The values of a row by column. OpenAI's evals wrap them in ``item``, beside the sampled answer."""
    item = row.get("item")
    return item if isinstance(item, dict) and row.keys() <= {"item", "sample"} else row


def _records(table: Table, file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """The non-blank records of a CSV file, each with the line where it begins."""
    csv.field_size_limit(MAX_ROW_BYTES)
    lines = _lines(table.path, file)
    first = next(lines, "")
    reader = csv.reader(chain([first], lines), delimiter=table.delimiter(first), strict=True)
    while True:
        begin = reader.line_num + 1
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


def _lines(path: Path, file: BinaryIO) -> Iterator[str]:
    number = 1
    while raw := file.readline(MAX_ROW_BYTES + 1):
        if len(raw) > MAX_ROW_BYTES:
            raise Unreadable(path, f"this row is larger than {MAX_ROW_BYTES // (1024 * 1024)} MB", number)
        for line in StringIO(decode(path, raw, number)):
            yield line
            number += 1
