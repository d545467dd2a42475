"""results.json: written as a stream, one case or finding per line, and read as hostile input."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from agent_eval_action.errors import ResultsError
from agent_eval_action.model.result import RunResult
from agent_eval_action.reports.output import write_text
from agent_eval_action.reports.results_parse import PARENTS, STREAMED, parse

MAX_BYTES = 512 * 1024 * 1024


def write(path: Path, result: RunResult, *, workspace: Path | None = None) -> None:
    """Write results.json: the same result gives the same bytes. Raises OutputError."""
    write_text(path, dump(result), workspace=workspace)


def read(path: Path, max_bytes: int = MAX_BYTES) -> RunResult:
    """Read results.json. Raises ResultsError naming the line for whatever is not one of this version."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > max_bytes:
        raise ResultsError(
            f"{path} is larger than {max_bytes:,} bytes", hint="split the run: fewer cases or fewer repeats"
        )
    return parsed(path, data)


def parsed(path: Path, data: bytes) -> RunResult:
    """The bytes of a results.json. ``path`` names them in messages. Raises ResultsError."""
    # Every object of a result stays: the cyclic collector walks them all again and again and takes 7 times the parsing
    collecting = gc.isenabled()
    gc.disable()
    try:
        return parse(path, data)
    finally:
        if collecting:
            gc.enable()


def dump(result: RunResult) -> Iterator[str]:
    """results.json in pieces, so that a large run is never in memory as text."""
    yield from _members(result, "")
    yield "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of results.json; ``schema/results.schema.json`` is this."""
    body = RunResult.model_json_schema(mode="validation")
    body["title"] = "results.json of agent-eval"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}


def _members(value: BaseModel, pad: str) -> Iterator[str]:
    yield "{"
    for index, name in enumerate(type(value).model_fields):
        yield f"{',' if index else ''}\n{pad} {json.dumps(name)}: "
        item = getattr(value, name)
        if (type(value), name) not in STREAMED or not item:
            yield _compact(value, name)
        elif isinstance(item, BaseModel):
            yield from _members(item, f"{pad} ")
        else:
            yield from _items(item, f"{pad} ")
    yield f"\n{pad}}}"


def _items(items: tuple[BaseModel, ...], pad: str) -> Iterator[str]:
    yield "["
    for index, item in enumerate(items):
        yield f"{',' if index else ''}\n{pad} "
        if type(item) in PARENTS:
            yield from _members(item, f"{pad} ")
        else:
            yield _line(item)
    yield f"\n{pad}]"


def _compact(value: BaseModel, name: str) -> str:
    try:
        return json.dumps(value.model_dump(mode="json", include={name})[name], ensure_ascii=False, allow_nan=False)
    except (PydanticSerializationError, ValueError):
        return _plain(value.model_dump(include={name})[name])


def _line(value: BaseModel) -> str:
    try:
        return value.model_dump_json()
    except PydanticSerializationError:
        return _plain(value.model_dump())


def _plain(value: Any) -> str:
    """For what JSON cannot hold: lone surrogates (replaced when they are encoded), numbers that are none."""
    return json.dumps(_mended(value), ensure_ascii=False, default=str)


def _mended(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
