"""Links that lead to themselves, or to each other, wherever something of the workspace is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.recorded_repository import RecordedRepository


@pytest.fixture
def repo(tmp_path: Path) -> RecordedRepository:
    (tmp_path / "workspace").mkdir()
    return RecordedRepository(tmp_path / "workspace")


NAMES = (
    "self",
    "other.evalset.json",
    "other.test.json",
    "pyproject.toml",
    "uv.lock",
    "requirements.txt",
    ".python-version",
    ".venv",
    ".env",
    "__init__.py",
    "session.json",
    "root_agent.yaml",
    "data",
)


@pytest.mark.parametrize("command", [("run",), ("validate",), ("baseline", "update"), ("run", "deep")])
def test_circles_all_over_the_workspace_change_nothing(repo, command):
    for folder in ("", "bot/", "deep/", "deep/er/"):
        for name in NAMES:
            if not (repo.root / folder / name).exists():
                repo.link(f"{folder}{name}", name)
        repo.link(f"{folder}a", "b")
        repo.link(f"{folder}b", "a")
    for path in ("bot/root_agent.yaml", "deep/root_agent.yaml", "deep/er/root_agent.yaml"):
        (repo.root / path).unlink()
    repo.commit()
    done = repo(*command)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 2}, done.stderr
    if done.returncode == 2:
        assert "evalset.json" in done.stderr or ".test.json" in done.stderr, done.stderr


PLACES = (
    "agent-eval.yaml",
    ".github/agent-eval.yaml",
    "s.evalset.json",
    "test_config.json",
    "recording/attempts.jsonl",
    "bot/agent.py",
    ".agent-eval",
    ".agent-eval/out",
    ".agent-eval/out/results.json",
    ".agent-eval/cache",
    ".agent-eval/baseline.json",
    ".agent-eval/accept.yaml",
    ".agent-eval/.gitignore",
)


@pytest.mark.exhaustive(after=6)
@pytest.mark.parametrize("place", PLACES)
def test_a_circle_in_the_place_of_a_file_is_said_or_passed_over(repo, place):
    link = repo.link(place, Path(place).name)
    repo.commit()
    for command in (("run",), ("baseline", "update")):
        done = repo(*command)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in {0, 2, 3}, done.stderr
        assert link.is_symlink()


OPTIONS = ("", "--agent", "--criteria", "--out", "--cache-dir", "--baseline", "--config", "--resume")


@pytest.mark.parametrize("option", OPTIONS)
def test_a_circle_that_is_named_is_reported(repo, option):
    repo.link("circle", "circle")
    done = repo("run", *([option] if option else []), "circle")
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {2, 3}, done.stderr
    assert "circle" in done.stderr
