"""The pytest plugin: collects each case of an eval file as a test. See docs/pytest.md.

Every pytest run imports this module, so it imports the rest only when eval files are collected.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from agent_eval_action.pytest_plugin.cases import CollectedEvalFile

_SUFFIXES: Final = (".evalset.json", ".test.json", "-dataset.json")
_CONFIG: Final = "--agent-eval-config"
_REPEATS: Final = "--agent-eval-repeats"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("agent-eval", "evaluation of LLM agents")
    group.addoption("--agent-eval", action="store_true", help="collect eval files as tests")
    group.addoption(_CONFIG, metavar="FILE", type=Path, help="collect eval files, with this agent-eval.yaml")
    group.addoption(_REPEATS, metavar="N", type=int, help="runs of every case; its mean has to meet the thresholds")
    parser.addini("agent_eval", "collect eval files as tests, as --agent-eval does", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of all cases."""
    config.addinivalue_line("markers", "agent_eval: a case of an eval file")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CollectedEvalFile | None:
    """Collect the cases of an eval file, if an option or the ini file asks for it."""
    config = parent.config
    wanted = config.getoption("--agent-eval") or config.getoption(_CONFIG) or config.getini("agent_eval")
    if not wanted or not file_path.name.endswith(_SUFFIXES):
        return None
    from agent_eval_action.pytest_plugin.cases import eval_file  # noqa: PLC0415 - see the module's docstring

    return eval_file(file_path, parent, config=config.getoption(_CONFIG), repeats=config.getoption(_REPEATS))
