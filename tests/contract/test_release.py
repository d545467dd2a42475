"""What a release changes, and what our own workflows are allowed to do."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
DIGEST = "sha256:" + "0123456789abcdef" * 4
OURS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EXAMPLES = sorted((ROOT / "examples").rglob(".github/workflows/*.yml"))
FIRST_PARTY = re.compile(r"\./|org/agent-eval-action(/host)?@v\d|docker://ghcr\.io/org/agent-eval-action:v\d")


def image() -> str:
    return yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["image"]


def steps(path: Path) -> list[dict]:
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job.get("steps", [])]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("action.yml", "pyproject.toml", "release/pin.py", "host/wheel.txt", "host/action.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def pin(checkout: Path, digest: str, wheel: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, checkout / "release" / "pin.py", digest, wheel]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_tree_builds_its_image_or_takes_the_published_one_of_its_version():
    published = re.fullmatch(r"docker://ghcr\.io/org/agent-eval-action:(.+)@sha256:[0-9a-f]{64}", image())
    assert image() == "Dockerfile" or (published and published.group(1) == VERSION)
    wheel = (ROOT / "host" / "wheel.txt").read_text()
    pinned = re.search(r"^agent-eval-action==(\S+) --hash=sha256:[0-9a-f]{64}$", wheel, re.MULTILINE)
    assert (image() == "Dockerfile") == (pinned is None), "both actions are a release, or neither is"
    assert pinned is None or pinned.group(1) == VERSION


@pytest.mark.skipif(image() != "Dockerfile", reason="this tree is a release")
def test_a_release_pins_what_was_published_and_changes_nothing_else(checkout, tmp_path):
    wheel = tmp_path / f"agent_eval_action-{VERSION}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    done = pin(checkout, DIGEST, wheel)
    assert done.returncode == 0, done.stderr
    before, after = (yaml.safe_load((root / "action.yml").read_text()) for root in (ROOT, checkout))
    assert after["runs"].pop("image") == f"docker://ghcr.io/org/agent-eval-action:{VERSION}@{DIGEST}"
    assert before["runs"].pop("image") == "Dockerfile"
    assert after == before
    hashed = hashlib.sha256(b"a wheel").hexdigest()
    assert (checkout / "host/wheel.txt").read_text() == f"agent-eval-action=={VERSION} --hash=sha256:{hashed}\n"
    assert pin(checkout, DIGEST, wheel).returncode != 0, "a release is not released again"


@pytest.mark.parametrize(
    ("digest", "name"),
    [("latest", f"agent_eval_action-{VERSION}-py3-none-any.whl"), (DIGEST, "agent_eval_action-9.9.9-py3-none-any.whl")],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(checkout, tmp_path, digest, name):
    (tmp_path / name).write_bytes(b"")
    assert pin(checkout, digest, tmp_path / name).returncode != 0
    assert (checkout / "action.yml").read_text() == (ROOT / "action.yml").read_text()
    assert (checkout / "host/wheel.txt").read_text() == (ROOT / "host/wheel.txt").read_text()


def test_the_wheel_of_one_commit_is_always_the_same(tmp_path):
    made = []
    for name in ("one", "two"):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / name]
        subprocess.run(
            build,
            cwd=ROOT,
            capture_output=True,
            env={"SOURCE_DATE_EPOCH": "1700000000", "PATH": "/usr/bin:/bin"},
            check=True,
        )
        made.append(next((tmp_path / name).glob("*.whl")).read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize("path", [*OURS, *EXAMPLES], ids=lambda path: f"{path.parts[-4]}/{path.name}")
def test_a_workflow_begins_without_permissions_and_says_why_it_has_each(path):
    workflow, text = yaml.safe_load(path.read_text()), path.read_text()
    if path in OURS:
        assert workflow["permissions"] == {}
        for name, job in workflow["jobs"].items():
            assert "permissions" in job, name
            assert "timeout-minutes" in job or "uses" in job, name
        for line in re.findall(r"^      [a-z-]+: (?:read|write).*$", text, re.MULTILINE):
            assert "#" in line, f"why?{line}"
    else:
        assert "permissions" in workflow


@pytest.mark.parametrize("path", [*OURS, *EXAMPLES], ids=lambda path: f"{path.parts[-4]}/{path.name}")
def test_foreign_actions_are_pinned_by_commit_and_checkouts_leave_no_token(path):
    for step in steps(path):
        uses = step.get("uses", "")
        if uses and not FIRST_PARTY.match(uses):
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", uses), uses
        if uses.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, path.name
    pins = dict(re.findall(r"uses: (\S+@[0-9a-f]{40})( # v[\d.]+)?", path.read_text()))
    assert all(pins.values()), "a commit is named with its version"


def test_one_action_is_pinned_to_one_commit_everywhere():
    pages = [*OURS, *EXAMPLES, ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found: dict[str, set[str]] = {}
    for page in pages:
        for name, commit in re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40})", page.read_text()):
            found.setdefault(name, set()).add(commit)
    assert {name: commits for name, commits in found.items() if len(commits) > 1} == {}
