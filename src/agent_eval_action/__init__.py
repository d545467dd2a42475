"""agent-eval-action: decides whether a change makes an agent worse."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("agent-eval-action")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0.0.0"
