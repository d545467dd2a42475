"""Writes every file, or part of a file, that is generated from code.

python -m tools.generate            write them
python -m tools.generate --check    print those that are out of date, and exit with 1

`make generate` runs the first.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_eval_action.reports import results_json
from agent_eval_action.results.history import Record
from agent_eval_action.run.listing import SuiteListing
from tools.action_files import input_table, inputs_env, inputs_yaml, option_table
from tools.config_schema import DIALECT, agent_eval_schema, criteria_file_schema

ROOT = Path(__file__).resolve().parents[1]

Part = Callable[[str], str]
"""Takes a file's text and returns it with its generated part up to date."""


def _whole(value: Callable[[], dict[str, Any]]) -> Part:
    return lambda _: json.dumps(value(), indent=2, ensure_ascii=False) + "\n"


def _between(begin: str, end: str, made: Callable[[], str]) -> Part:
    """Replace the lines between two markers; the markers stay."""
    pattern = re.compile(rf"(?<={re.escape(begin)}).*?(?={re.escape(end)})", re.DOTALL)

    def replace(text: str) -> str:
        if not pattern.search(text):
            raise ValueError(f"there is no place between {begin!r} and {end!r}")
        return pattern.sub(lambda _: made(), text, count=1)

    return replace


def baseline_schema() -> dict[str, Any]:
    """Return the schema of baseline.json."""
    schema = Record.model_json_schema(mode="validation")
    for name in ("parents", "committed_at", "whole", "withheld"):  # only in the records on a branch
        del schema["properties"][name]
    del schema["$defs"]["OmittedPair"]
    return {"$schema": DIALECT, **schema, "title": "baseline.json of agent-eval"}


def list_schema() -> dict[str, Any]:
    """Return the schema of the output of `agent-eval list --json`."""
    return {"$schema": DIALECT, **SuiteListing.model_json_schema(mode="serialization"), "title": "agent-eval list"}


GENERATED: tuple[tuple[str, Part], ...] = (
    ("schema/agent-eval.schema.json", _whole(agent_eval_schema)),
    ("schema/test_config.schema.json", _whole(criteria_file_schema)),
    ("schema/baseline.schema.json", _whole(baseline_schema)),
    ("schema/results.schema.json", _whole(results_json.schema)),
    ("schema/list.schema.json", _whole(list_schema)),
    ("action.yml", _between("\ninputs:\n", "\noutputs:\n", inputs_yaml)),
    ("host/action.yml", _between("\ninputs:\n", "\noutputs:\n", lambda: inputs_yaml(host=True))),
    ("host/action.yml", _between("        # inputs\n", "        # /inputs\n", inputs_env)),
    ("docs/config.md", _between("<!-- options -->\n", "<!-- /options -->", lambda: option_table() + "\n")),
    ("docs/config.md", _between("<!-- inputs -->\n", "<!-- /inputs -->", lambda: input_table() + "\n")),
)


def outdated(root: Path = ROOT, *, write: bool = False) -> list[str]:
    """Return the paths of outdated files; ``write`` updates them."""
    found = []
    for name, part in GENERATED:
        path = root / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        made = part(text)
        if made != text:
            found.append(name)
            if write:
                path.write_text(made, encoding="utf-8")
    return found


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 if ``--check`` finds outdated files, 2 for wrong usage."""
    check = arguments == ["--check"]
    if arguments and not check:
        sys.stderr.write(str(__doc__))
        return 2
    found = outdated(write=not check)
    for name in dict.fromkeys(found):
        sys.stdout.write(f"{name}: {'out of date: make generate' if check else 'written'}\n")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
