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
IMAGE = "ghcr.io/somebody/agent-eval-action"
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


def pin(checkout: Path, digest: str, wheel: Path, image: str = IMAGE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, checkout / "release" / "pin.py", image, digest, wheel]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_tree_builds_its_image_or_takes_the_published_one_of_its_version():
    published = re.fullmatch(r"docker://ghcr\.io/[a-z0-9-]+/agent-eval-action:(.+)@sha256:[0-9a-f]{64}", image())
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
    assert after["runs"].pop("image") == f"docker://{IMAGE}:{VERSION}@{DIGEST}"
    assert before["runs"].pop("image") == "Dockerfile"
    assert after == before
    hashed = hashlib.sha256(b"a wheel").hexdigest()
    assert (checkout / "host/wheel.txt").read_text() == f"agent-eval-action=={VERSION} --hash=sha256:{hashed}\n"
    assert pin(checkout, DIGEST, wheel).returncode != 0, "a release is not released again"


def test_a_name_that_is_no_images_is_refused(checkout, tmp_path):
    wheel = tmp_path / f"agent_eval_action-{VERSION}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    assert pin(checkout, DIGEST, wheel, image="docker://x y").returncode != 0
    assert (checkout / "action.yml").read_text() == (ROOT / "action.yml").read_text()


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


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository on main whose version has its section in the changelog."""
    root = tmp_path / "repository"
    (root / "release").mkdir(parents=True)
    shutil.copy(ROOT / "release" / "state.py", root / "release" / "state.py")
    (root / "pyproject.toml").write_text('[project]\nversion = "0.4.2"\n')
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 0.4.2 - 2026-11-22\n")
    (root / "action.yml").write_text("runs:\n  image: Dockerfile\n")
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "main")
    return root


def git(root: Path, *argv: str) -> None:
    author = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "-C", root, *author, *argv], check=True, capture_output=True)


def commit(root: Path, message: str) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "-m", message)


def state(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, root / "release" / "state.py"], capture_output=True, text=True, check=False)


def tag_release(root: Path, image: str) -> None:
    """What the job `tag` does: a commit beside main that pins the image."""
    git(root, "checkout", "--quiet", "--detach")
    (root / "action.yml").write_text(f"runs:\n  image: {image}\n")
    commit(root, "Release")
    git(root, "tag", "v0.4.2")
    git(root, "checkout", "--quiet", "main")


def test_a_version_that_is_new_is_built(repository):
    assert state(repository).stdout == "version=0.4.2\nmajor=v0\ndigest=\n"


def test_a_release_that_is_run_again_keeps_the_image_its_tag_pins(repository):
    tag_release(repository, f"docker://{IMAGE}:0.4.2@{DIGEST}")
    assert state(repository).stdout == f"version=0.4.2\nmajor=v0\ndigest={DIGEST}\n"


def test_a_version_that_another_commit_was_released_as_is_refused(repository):
    tag_release(repository, f"docker://{IMAGE}:0.4.2@{DIGEST}")
    commit(repository, "one more")
    done = state(repository)
    assert done.returncode == 1
    assert "v0.4.2 was released from another commit" in done.stderr


def test_a_tag_that_pins_nothing_is_refused(repository):
    tag_release(repository, "Dockerfile")
    assert "pins no image" in state(repository).stderr


def test_a_version_without_a_section_in_the_changelog_is_refused(repository):
    (repository / "CHANGELOG.md").write_text("# Changelog\n\n## 0.4.1\n")
    done = state(repository)
    assert done.returncode == 1
    assert "no section 0.4.2" in done.stderr


def test_the_owner_stands_in_one_place_and_is_renamed_from_there(tmp_path):
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "--quiet", "--no-local", "--depth=1", f"file://{ROOT}", copy], check=True)
    for path in ("release/owner.py", "pyproject.toml"):  # as they stand in this tree, committed or not
        shutil.copy(ROOT / path, copy / path)
    subprocess.run([sys.executable, copy / "release" / "owner.py", "new-owner"], check=True, capture_output=True)
    renamed = yaml.safe_load((copy / "examples/dice/.github/workflows/agent-eval.yml").read_text())
    uses = [step["uses"] for job in renamed["jobs"].values() for step in job["steps"]]
    assert any(name.startswith("new-owner/agent-eval-action@v") for name in uses)
    left = subprocess.run(
        ["git", "-C", copy, "grep", "-nIE", r"(^|[^A-Za-z0-9._-])org/agent-eval-action|@org/"],
        capture_output=True,
        text=True,
        check=False,
    )
    kept = [line for line in left.stdout.splitlines() if not line.startswith(("tests/", "docs/workflows.md"))]
    assert kept == []


def test_the_pages_name_the_major_version_there_is():
    major = VERSION.partition(".")[0]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.y*ml"), *OURS]
    named = {
        found
        for page in pages
        for found in re.findall(r"/agent-eval-action(?:/host)?(?:@|:|/)v(\d+)\b", page.read_text())
    }
    assert named == {major}


def test_nothing_irrevocable_comes_before_the_tag_and_the_major_tag_comes_last():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]

    def before(name: str) -> set[str]:
        needs = jobs[name].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*map(before, direct)) if direct else set()

    assert {"test", "wheel", "image"} <= before("tag")
    assert {"tag", "container"} <= before("pypi")
    assert {"pypi", "host"} <= before("announce") == set(jobs) - {"announce"}
    attested = {name for name, job in jobs.items() if any("attest" in s.get("uses", "") for s in job.get("steps", []))}
    assert attested == {"wheel", "image"}
