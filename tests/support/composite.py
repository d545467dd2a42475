"""Runs a composite action as actions/runner does, as far as ours needs it: inputs with their defaults, expressions in
``env``, a bash of its own for every step, outputs by file. Whatever else an action may hold is refused."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{ (?:inputs\.([\w-]+)|steps\.(\w+)\.outputs\.([\w-]+)) \}\}")
# CompositeActionHandler: `shell: bash` is this line.
_BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")


@dataclass
class Ran:
    """How a composite action ended: ``code`` of the step that failed, else 0."""

    code: int = 0
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


def run_composite(
    folder: Path, inputs: Mapping[str, str], workspace: Path, temp: Path, environ: Mapping[str, str]
) -> Ran:
    """Run ``folder``'s action.yml in ``workspace``. ``environ`` is the job's."""
    action = yaml.safe_load((folder / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    assert set(inputs) <= set(action["inputs"]), "the runner warns of these"
    given = {name: inputs.get(name, "") for name in action["inputs"]}  # defaults are GitHub's to evaluate: none here
    outputs: dict[str, dict[str, str]] = {}
    ran = Ran()
    for number, step in enumerate(action["runs"]["steps"]):
        assert set(step) <= {"id", "shell", "run", "env"}, step
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
        script, written = temp / f"step{number}.sh", temp / f"outputs{number}"
        script.write_text(step["run"] + "\n")
        written.touch()
        own = {name: _value(value, given, outputs) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            [*_BASH, script],
            cwd=workspace,
            env={**environ, **own, "GITHUB_ACTION_PATH": str(folder), "GITHUB_OUTPUT": str(written)},
            capture_output=True,
            text=True,
            check=False,
        )
        ran.log += done.stdout + done.stderr
        if "id" in step:
            outputs[step["id"]] = _read(written.read_text())
        if done.returncode:
            ran.code = done.returncode
            break
    ran.outputs = {name: _value(entry["value"], given, outputs) for name, entry in action["outputs"].items()}
    return ran


def job_environ(workspace: Path, temp: Path, **more: str) -> dict[str, str]:
    """The environment of a job on a runner: what the machine needs to reach packages, and GitHub's variables."""
    machine = {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "HOME", "LANG", "SSL_CERT_FILE"} or name.startswith(("PIP_", "UV_"))
    }
    return {
        **machine,
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(workspace),
        "GITHUB_EVENT_NAME": "push",
        "RUNNER_OS": "Linux",
        "RUNNER_TEMP": str(temp),
        **more,
    }


def _value(text: Any, inputs: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]]) -> str:
    def known(found: re.Match[str]) -> str:
        name, step, output = found.groups()
        return inputs[name] if name else outputs.get(step, {}).get(output, "")

    value = _EXPRESSION.sub(known, str(text))
    assert "${{" not in value, f"an expression this runner does not know: {value}"
    return value


def _read(text: str) -> dict[str, str]:
    """``name=value`` and ``name<<DELIMITER``, as the runner reads its files."""
    values: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, delimiter, rest = re.match(r"([^=<]+)(=|<<)(.*)", line).groups()  # type: ignore[union-attr] # none: it fails
        if delimiter == "=":
            values[name] = rest
            continue
        block = []
        while (one := next(lines)) != rest:
            block.append(one)
        values[name] = "\n".join(block)
    return values
