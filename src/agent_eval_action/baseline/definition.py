"""What a criterion was, as records keep it: enough to say later in words what of it changed. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any, Final

from agent_eval_action.model.baseline import DIGEST_LENGTH, Definition, kept_digest
from agent_eval_action.model.result import CriterionInfo, RunResult
from agent_eval_action.source import shorten

_OPTION_LIMIT: Final = 200
_ENTRIES: Final = 20


def definition(info: CriterionInfo) -> Definition:
    """A criterion as records describe it."""
    return Definition(
        name=info.name,
        goal=info.goal,
        scoring_version=info.scoring_version,
        judge=info.judge[:_OPTION_LIMIT],
        options={name: _short(value) for name, value in sorted(info.options.items())},
    )


def definitions(result: RunResult, only: Collection[str] | None = None) -> dict[str, Definition]:
    """Every criterion of a run by the digest a record keeps; ``only``: those of these digests."""
    infos = sorted((info for one in result.sets for info in one.criteria), key=lambda info: info.digest)
    found = {kept_digest(info.digest): info for info in infos}
    return {digest: definition(info) for digest, info in found.items() if only is None or digest in only}


def _short(value: Any) -> Any:
    """Small values as they are, long ones by their beginning and a digest of all: that they differ can be seen."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict) and len(value) <= _ENTRIES:
        return {str(name)[:_OPTION_LIMIT]: _short(item) for name, item in value.items()}
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if len(text) <= _OPTION_LIMIT:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    return f"{shorten(value, _OPTION_LIMIT // 4)} sha256:{digest}"
