"""agent-eval-action: decides whether a change makes an agent worse. docs/python-api.md shows the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_eval_action.api import compare, evaluate, evaluate_sync
    from agent_eval_action.config.loader import load_settings
    from agent_eval_action.config.models import Settings
    from agent_eval_action.criteria.base import Criterion
    from agent_eval_action.results.decision import Verdict
    from agent_eval_action.results.run_result import RunResult

    __version__: str

__all__ = [
    "Criterion",
    "RunResult",
    "Settings",
    "Verdict",
    "__version__",
    "compare",
    "evaluate",
    "evaluate_sync",
    "load_settings",
]

_MODULES = {
    "Criterion": "criteria.base",
    "RunResult": "results.run_result",
    "Settings": "config.models",
    "Verdict": "results.decision",
    "compare": "api",
    "evaluate": "api",
    "evaluate_sync": "api",
    "load_settings": "config.loader",
}


def __getattr__(name: str) -> Any:
    """Import a public name, or read the version, on first use: this keeps the command's start fast."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - see above

        try:
            value: Any = version("agent-eval-action")
        except PackageNotFoundError:  # a source tree that is not installed
            value = "0.0.0"
    elif name in _MODULES:
        from importlib import import_module  # noqa: PLC0415 - see above

        value = getattr(import_module(f"agent_eval_action.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
