"""The common command line of benchmarks: ``--rounds``, ``--json``, exit code 1 if a target is missed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import CommandFailed


@dataclass(frozen=True)
class Benchmark:
    """``measure`` takes the options and returns a report, ``show`` prints it, ``met`` tells if it meets its targets."""

    parser: argparse.ArgumentParser
    measure: Callable[[argparse.Namespace], dict[str, Any]]
    show: Callable[[dict[str, Any]], None]
    met: Callable[[dict[str, Any]], bool]

    def main(self, arguments: Sequence[str] | None) -> int:
        """Measure and print. Returns 1 if a target is missed or a command failed."""
        options = self.parser.parse_args(arguments)
        try:
            report = self.measure(options)
        except CommandFailed as failed:
            print(failed, file=sys.stderr)
            return 1
        if options.json:
            print(json.dumps(report, indent=1))
        else:
            self.show(report)
        return int(not self.met(report))


def command_line(name: str, about: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with ``--rounds`` and ``--json``; ``about`` is the module's docstring."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--json", action="store_true")
    return made
