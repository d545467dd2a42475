"""The YAML of the documentation: what each block is, told by what is in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.md")])
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# tests/contract/test_ci_recipes.py holds these to their own schemas.
_OTHER_CI = ("# .gitlab-ci.yml\n", "# azure-pipelines.yml\n", "# bitbucket-pipelines.yml\n")
_STEP = {"id", "name", "if", "uses", "with", "env", "run", "continue-on-error"}
_WORKFLOW = {"on", "jobs", "permissions", "concurrency", "name"}
_SOME_JOB = {"runs-on": "ubuntu-latest", "steps": [{"run": "true"}]}


class _Loader(yaml.SafeLoader):
    """YAML 1.2's booleans, as GitHub reads workflows: `on` is a word."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


@dataclass(frozen=True)
class Block:
    """One block. ``workflow`` is the whole workflow it is a part of, None for a file of ours.

    Of ours is agent-eval.yaml, and accept.yaml, which is a list (``accepted``).
    """

    page: Path
    number: int
    text: str
    workflow: dict[str, Any] | None
    accepted: bool = False

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)} {self.number}"

    @property
    def steps(self) -> list[dict[str, Any]]:
        jobs = self.workflow["jobs"].values() if self.workflow else ()
        return [step for job in jobs for step in job.get("steps", [])]


def blocks() -> list[Block]:
    """Every YAML block of every page, but the pipelines of CI other than GitHub."""
    found = []
    for page in PAGES:
        for number, text in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            if text.startswith(_OTHER_CI):
                continue
            data = yaml.load(text, _Loader)  # noqa: S506 - a safe loader with fewer words
            accepted = isinstance(data, list) and all("case" in one for one in data)
            found.append(Block(page, number, text, None if accepted else _workflow(data), accepted))
    return found


def _workflow(data: Any) -> dict[str, Any] | None:
    """A fragment put where it belongs; None for what is no part of a workflow."""
    if isinstance(data, list):
        data = {"jobs": {"some": {"runs-on": "ubuntu-latest", "steps": data}}}
    elif isinstance(data, dict) and set(data) <= _STEP and set(data) & {"uses", "with", "run", "env"}:
        step = {"uses": "org/agent-eval-action@v0", **data} if "run" not in data else data
        data = {"jobs": {"some": {"runs-on": "ubuntu-latest", "steps": [step]}}}
    elif not isinstance(data, dict) or not set(data) <= _WORKFLOW or not set(data) & (_WORKFLOW - {"name"}):
        return None
    return {"on": ["pull_request"], "jobs": {"some": _SOME_JOB}, **data}
