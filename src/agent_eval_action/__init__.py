"""agent-eval-action: decides whether a change makes an agent worse."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """``__version__``, read from the package's metadata when asked for: the reading costs at every start."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - see above

    try:
        return version("agent-eval-action")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0.0.0"
