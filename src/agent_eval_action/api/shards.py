"""Read the files that jobs of a matrix exchange: results of shards, and the file of a wave."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.diagnostics.validation import validated
from agent_eval_action.errors import AgentEvalError, ResultsError, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.reports import results_json
from agent_eval_action.results.run_result import ShardProblem, ShardTrouble
from agent_eval_action.run.shards import ShardResult, Wave

_MOST_FILES: Final = 10_000


def read_shards(paths: Sequence[Path], workspace: Path) -> tuple[list[ShardResult], list[ShardProblem]]:
    """Read every results.json in these files and folders, and report those that cannot be read.

    Raises UsageError for a path that does not exist.
    """
    found: list[ShardResult] = []
    problems: list[ShardProblem] = []
    for path in dict.fromkeys(file for given in paths for file in _results_files(given)):
        source = relative(path, workspace)
        try:
            data = path.read_bytes()
            result = results_json.parsed(path, data)
        except (OSError, AgentEvalError) as error:
            detail = error.message.removeprefix(str(path)) if isinstance(error, AgentEvalError) else str(error)
            problems.append(ShardProblem(kind=ShardTrouble.UNREADABLE, source=source, detail=detail.lstrip(":")))
        else:
            found.append(ShardResult(source, path.parent, result, hashlib.sha256(data).hexdigest()))
    return found, problems


def _results_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        files = sorted(islice(path.rglob(results_json.RESULTS), _MOST_FILES))
        yield from (file for file in files if file.is_file() and not file.is_symlink())
    else:
        raise UsageError(f"there are no results at {path}", hint="name the folders or files that the shards left")


def read_wave(path: Path) -> Wave:
    """Read the file that ``agent-eval next-wave`` wrote. Raises ResultsError."""
    source = Source.read(path, workspace=None, error=ResultsError)
    return validated(source, Wave, f"{path} is no file of a wave", "`agent-eval next-wave` writes it")
