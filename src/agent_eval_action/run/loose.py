"""Checking files named by hand, whatever agent they belong to: eval files, criteria files, configurations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_eval_action import criteria
from agent_eval_action.config.settings import resolve
from agent_eval_action.config.specs import load_criteria_file
from agent_eval_action.errors import AgentEvalError, EvalFileError, Problem, UsageError
from agent_eval_action.folders import real_path
from agent_eval_action.formats import load_eval_file
from agent_eval_action.source import Source

_EVAL_ENDINGS = (".evalset.json", ".test.json")
_CONFIGS = ("agent-eval.yaml", "agent-eval.yml")
_CRITERIA = ("test_config.json", "eval_config.json")
_SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".agent-eval"})


def load_loose(paths: Sequence[Path], workspace: Path) -> tuple[int, list[Problem]]:
    """How many files were looked at, and every problem and warning in them.

    In a folder these are found by name; a file named itself is checked whatever its name. Raises
    UsageError for a path that is not there.
    """
    problems: list[Problem] = []
    files = [file for path in paths for file in _files(path)]
    for file in files:
        problems += _check(file, workspace if real_path(file).is_relative_to(workspace) else file.parent)
    if not files:
        raise UsageError("there is no eval file or configuration in " + ", ".join(map(str, paths)))
    return len(files), problems


def _files(path: Path) -> Iterator[Path]:
    if not os.path.lexists(path):
        raise UsageError(f"there is no file or folder {path}")
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            if name.endswith(_EVAL_ENDINGS) or name in {*_CONFIGS, *_CRITERIA}:
                yield Path(folder) / name


def _holds_criteria(file: Path, workspace: Path) -> bool:
    value = Source.read(file, workspace=workspace, error=EvalFileError).value
    return file.name in _CRITERIA or (isinstance(value, dict) and "criteria" in value and "eval_cases" not in value)


def _check(file: Path, workspace: Path) -> Sequence[Problem]:
    try:
        if file.suffix in {".yaml", ".yml"}:
            return resolve(flags={"config": str(file)}, environ={}, cwd=Path.cwd()).warnings
        if _holds_criteria(file, workspace):
            config = load_criteria_file(file, workspace=workspace)
            criteria.build(config.specs)
            return config.warnings
        return load_eval_file(file, workspace=workspace).warnings
    except AgentEvalError as error:
        return error.problems or (Problem(file, error.message, hint=error.hint),)
