"""Whoever reads CONTRIBUTING.md knows every target of the Makefile, and CI runs what they run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE)


def test_every_target_is_documented_in_both_places():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert len(TARGETS) > 8
    for target in TARGETS:
        assert re.search(rf"^  make {target} +\S", shown, re.MULTILINE) or target == "help", target
        assert f"`make {target}`" in contributing, target


def test_every_documented_target_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"`make ([a-z][a-z0-9-]*)", page.read_text()):
            assert target in TARGETS, f"{page.name} speaks of make {target}"


def test_the_workflows_run_the_same_targets():
    runs = []
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(workflow.read_text())["jobs"].values():
            runs += [step["run"] for step in job.get("steps", []) if step.get("run", "").startswith("make ")]
    used = {target for run in runs for target in run.split()[1:]}
    assert {"lint", "test", "test-container"} <= used <= set(TARGETS)
