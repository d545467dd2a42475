"""A record as the bytes of its file, and back: what is read from a branch is data of whoever may push to it."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Final

from pydantic import ValidationError
from pydantic_core import from_json

from agent_eval_action.model.history import RECORD_VERSION, Record

MAX_BYTES: Final = 32 * 1024 * 1024
SHA_SHOWN: Final = 12
_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{4,64}-[0-9a-z]{4,32}\.json")
_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def text(record: Record) -> bytes:
    """One case a line, so that git stores what two runs have in common once."""
    head = record.model_dump(mode="json", exclude={"cases"}, exclude_defaults=True)
    head = {"schema_version": record.schema_version, **head}
    lines = [_json(case.model_dump(mode="json", exclude_defaults=True)) for case in record.cases]
    body = ",\n".join(lines)
    # half a surrogate pair, which an agent may well say, is no UTF-8 and no JSON that pydantic reads
    return f'{_json(head)[:-1]},"cases":[\n{body}\n]}}\n'.encode("utf-8", "replace")


def parse(data: bytes) -> Record | str:
    """The record, or in words why these bytes are none."""
    if len(data) > MAX_BYTES:
        return f"is larger than {MAX_BYTES >> 20} MB"
    try:
        value = from_json(data, allow_inf_nan=False)  # it stops at 200 levels, Python's own at a crash
    except ValueError as error:
        return f"is no JSON: {str(error)[:80]}"
    version = value.get("schema_version") if isinstance(value, dict) else None
    if type(version) is not int or version != RECORD_VERSION:
        return f"has schema version {str(version)[:20]}; this agent-eval reads {RECORD_VERSION}"
    try:
        record = Record.model_validate(value)
    except ValidationError as error:
        place = ".".join(str(step) for step in error.errors(include_url=False)[0]["loc"][:4])
        return f"is no record: {place[:80]}"
    if record.commit is not None and not _SHA.fullmatch(record.commit):
        return "is no record: commit"
    return record


def file_name(record: Record, unique: str) -> str:
    """Sorted by name the files are sorted by when their runs began."""
    return f"{_moment(record.created_at)}-{(record.commit or '0' * SHA_SHOWN)[:SHA_SHOWN]}-{unique}.json"


def commit_in(name: str) -> str:
    """The beginning of the commit a file is named after."""
    return name.split("-")[1] if name.count("-") > 1 else ""


def is_file_name(name: str, now: dt.datetime) -> bool:
    """Whether a file is named as a record is. One from the future would never be pruned, and push out all others."""
    found = _NAME.fullmatch(name)
    return bool(found) and found.group(1) <= _stamp(now + dt.timedelta(days=1)) if found else False


def _moment(created_at: str) -> str:
    try:
        made = dt.datetime.fromisoformat(created_at)
    except ValueError:
        made = dt.datetime.now(dt.UTC)
    return _stamp(made if made.tzinfo else made.replace(tzinfo=dt.UTC))


def _stamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y%m%dT%H%M%SZ")


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
