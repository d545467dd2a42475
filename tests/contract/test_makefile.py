"""Whoever reads CONTRIBUTING.md knows every target of the Makefile, and CI runs what they run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
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
    used = {target for run in runs for target in run.split()[1:] if not target.startswith("-")}
    assert {"lint", "test", "test-rest", "test-container"} <= used <= set(TARGETS)


def test_what_one_target_leaves_out_the_other_runs():
    selections = dict(re.findall(r'^(test\S*):.*\n\t\$\(PYTEST\).* -m "([^"]+)"$', MAKEFILE, re.MULTILINE))
    left_out = selections["test"].split(" and ")
    assert all(re.fullmatch(r"not \w+", term) for term in left_out), left_out
    others = f"{selections['test-rest']} or {selections['test-container']}".split(" or ")
    assert {term.removeprefix("not ") for term in left_out} == set(others)
    everything = subprocess.run(["make", "--dry-run", "test-all"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {f'-m "{selection}"' in everything.stdout for selection in selections.values()} == {True}


def test_variants_beyond_the_first_are_left_to_the_other_target(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  exhaustive: x\n  container: x\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.exhaustive(after=1)\n@pytest.mark.parametrize('number', range(3))\n"
        "def test_variants(number): ...\n"
        "@pytest.mark.exhaustive\ndef test_slow(): ...\n"
        "def test_quick(): ...\n"
    )
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m"]
    run, left = (
        re.findall(
            r"::(\S+)", subprocess.run([*argv, wanted], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        )
        for wanted in ("not exhaustive", "exhaustive")
    )
    assert run == ["test_variants[0]", "test_quick"]
    assert left == ["test_variants[1]", "test_variants[2]", "test_slow"]


@pytest.mark.exhaustive
def test_the_examples_of_a_property_are_a_quarter_here_and_all_in_the_other_target(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  exhaustive: x\n")
    (tmp_path / "test_it.py").write_text(
        "from hypothesis import given, settings, strategies\n"
        "def test_quick(): ...\n"
        "@settings(max_examples=80, database=None)\n@given(strategies.integers())\n"
        "def test_property(number):\n    with open('examples', 'a') as file: file.write('x')\n"
    )
    assert "--all-examples" in MAKEFILE
    for words, examples, passed in (([], 20, 2), (["--all-examples", "-m", "exhaustive"], 80, 1)):
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert f"{passed} passed" in done.stdout
        made = (tmp_path / "examples").read_text()
        assert len(made) == examples
        (tmp_path / "examples").unlink()
