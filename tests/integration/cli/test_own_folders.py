"""What a pull request brings never decides where we write: links, tracked folders, places and names in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.recorded_repository import RecordedRepository
from support.repositories import run_git

OUT = ".agent-eval/out"


@pytest.fixture
def repo(tmp_path: Path) -> RecordedRepository:
    (tmp_path / "workspace").mkdir()
    return RecordedRepository(tmp_path / "workspace")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder that is not ours, with a file in every place we might write to."""
    for name in ("config", "out/logs/bot.log", "out/attempts.jsonl", "logs/bot.log", "bot.log", "baseline.json"):
        file = tmp_path / "precious" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("precious\n")
    return tmp_path / "precious"


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WAYS = {
    ".agent-eval": "",
    OUT: "out",
    f"{OUT}/logs": "logs",
    f"{OUT}/logs/bot.log": "config",
    f"{OUT}/logs/bot.base.log": "config",
    f"{OUT}/logs/bot.metrics.log": "config",
    f"{OUT}/attempts.jsonl": "config",
    f"{OUT}/attempts.previous.jsonl": "config",
    f"{OUT}/blobs": "",
    f"{OUT}/blobs/{'a' * 64}": ".gitconfig",
    f"{OUT}/results.json": "config",
    f"{OUT}/junit.xml": "config",
    f"{OUT}/comment.md": "config",
    f"{OUT}/report.html": "config",
    f"{OUT}/anything/at/all": "",
    ".agent-eval/cache": "",
    ".agent-eval/cache/llm": "logs",
    ".agent-eval/cache/environments": "out",
    ".agent-eval/cache/base": "out",
}


@pytest.mark.exhaustive(after=6)
@pytest.mark.parametrize("way", WAYS)
def test_a_committed_link_is_refused_and_not_followed(repo, precious, way):
    link = repo.link(way, precious / WAYS[way])
    repo.commit()
    before = everything(precious)
    done = repo("run")
    assert done.returncode == 2, done.stderr
    assert way in done.stderr
    assert "Traceback" not in done.stderr
    assert everything(precious) == before
    assert link.is_symlink()


@pytest.mark.parametrize("command", [("baseline", "update"), ("compare", "recording", "recording", "--out", OUT)])
def test_every_command_that_writes_results_refuses_a_link(repo, precious, command):
    repo.link(OUT, precious / "out")
    before = everything(precious)
    done = repo(*command)
    assert done.returncode == 2, done.stderr
    assert f"{OUT}: is a symbolic link" in done.stderr
    assert everything(precious) == before


@pytest.mark.parametrize("name", ["attempts.jsonl", "logs/bot.log", "results.json"])
def test_a_link_that_is_not_committed_is_refused_too(repo, precious, name):
    repo.link(f"{OUT}/{name}", precious / "config")
    done = repo("run")
    assert done.returncode == 2
    assert f"{OUT}/{name}: is a symbolic link" in done.stderr
    assert "remove the link" in done.stderr
    assert (precious / "config").read_text() == "precious\n"


TRACKED = (
    f"{OUT}/attempts.jsonl",
    f"{OUT}/results.json",
    ".agent-eval/cache/llm/ab/answer.json",
    ".agent-eval/cache/environments/0123.tar",
    ".Agent-Eval/CACHE/llm/ab/answer.json",
)


@pytest.mark.parametrize("name", TRACKED)
def test_results_and_caches_that_were_committed_are_refused(repo, name):
    repo.write(name, "{}")
    assert repo("run").returncode == 0  # made here, as by an earlier run
    repo.write(name, "{}")
    repo.commit()
    done = repo("run")
    assert done.returncode == 2
    assert f"{name}: is committed" in done.stderr
    assert "git rm -r --cached" in done.stderr


def test_what_is_meant_to_be_committed_is_no_reason(repo):
    assert repo("baseline", "update").returncode == 0
    repo.write(".agent-eval/accept.yaml", "[]\n")
    repo.write(f"{OUT}/.gitkeep", "")
    repo.write(".agent-eval/cache/.gitignore", "*\n")
    run_git(repo.root, "add", "--all")
    repo.commit()
    assert ".agent-eval/baseline.json" in run_git(repo.root, "ls-files")
    run_git(repo.root, "rm", "-r", "-q", "--cached", f"{OUT}/logs", f"{OUT}/attempts.jsonl", "--ignore-unmatch")
    run_git(repo.root, "rm", "-q", "--cached", *tracked_results(repo))
    done = repo("run")
    assert done.returncode == 0, done.stderr


def tracked_results(repo: RecordedRepository) -> list[str]:
    names = run_git(repo.root, "ls-files", OUT).splitlines()
    return [name for name in names if not name.endswith(".gitkeep")]


@pytest.mark.parametrize("place", [".agent-eval", ".agent-eval/cache", OUT])
def test_a_submodule_in_the_place_of_a_folder_of_ours_is_refused(repo, place):
    head = run_git(repo.root, "rev-parse", "HEAD")
    run_git(repo.root, "update-index", "--add", "--cacheinfo", f"160000,{head},{place}")
    run_git(repo.root, "commit", "--quiet", "-m", "x")
    done = repo("run")
    assert done.returncode == 2
    assert f"{place}: is committed" in done.stderr


def test_attempts_that_were_committed_are_not_resumed(repo):
    repo.write("earlier/attempts.jsonl", repo.root.joinpath("recording/attempts.jsonl").read_text())
    assert repo("run", "--resume", "earlier").returncode == 0
    repo.commit()
    done = repo("run", "--resume", "earlier")
    assert done.returncode == 2
    assert "earlier/attempts.jsonl: is committed" in done.stderr


@pytest.mark.parametrize("option", ["out", "cache_dir"])
@pytest.mark.parametrize("place", [".git", ".git/modules/x", ".GIT", "sub/.git/logs"])
def test_gits_own_folder_is_no_place_for_ours(repo, option, place):
    repo.write("agent-eval.yaml", f"agent: bot\nrecording: recording\n{option}: {place}\n")
    before = everything(repo.root / ".git")
    done = repo("run")
    assert done.returncode == 2
    assert "git's own folder" in done.stderr
    assert everything(repo.root / ".git") == before


@pytest.mark.parametrize("option", ["out", "cache_dir"])
def test_a_place_elsewhere_is_the_steps_to_name_and_not_the_files(repo, tmp_path, option):
    there = tmp_path / "elsewhere"
    repo.write("agent-eval.yaml", f"agent: bot\nrecording: recording\n{option}: {there}\n")
    refused = repo("run")
    assert refused.returncode == 2
    assert "agent-eval.yaml:3: " in refused.stderr
    assert not there.exists()
    repo.write("agent-eval.yaml", "agent: bot\nrecording: recording\n")
    assert repo("run", f"--{option.replace('_', '-')}", str(there)).returncode == 0
    assert repo("run", **{f"INPUT_{option.upper()}": str(there)}).returncode == 0
    assert (there / "results.json").exists() is (option == "out")


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "a\\\\b", "a\\0b"])
def test_a_name_that_is_a_path_is_refused(repo, name):
    repo.write("agent-eval.yaml", f'agents:\n  - path: bot\n    recording: recording\n    name: "{name}"\n')
    before = set(repo.root.rglob("*"))
    done = repo("run")
    assert done.returncode == 2
    assert "agent-eval.yaml:4: " in done.stderr
    assert set(repo.root.rglob("*")) == before


def test_a_baseline_that_is_a_link_is_not_written_through(repo):
    repo.write("notes.json", '{"mine": 1}')
    results = repo.root / "results"
    assert repo("run", "--out", str(results)).returncode == 0
    repo.link(".agent-eval/baseline.json", "../notes.json")
    done = repo("baseline", "update", "--from", str(results))
    assert done.returncode == 2, done.stderr
    repo.link(".agent-eval/baseline.json", "nowhere.json")
    again = repo("baseline", "update", "--from", str(results))
    assert again.returncode == 2, again.stderr
    assert (repo.root / "notes.json").read_text() == '{"mine": 1}'
    assert not (repo.root / ".agent-eval/nowhere.json").exists()


def test_an_accepted_change_is_not_written_through_a_link(repo):
    repo.write("notes.yaml", "- {case: a, reason: mine}\n")
    repo.link(".agent-eval/accept.yaml", "../notes.yaml")
    done = repo("accept", "a", "--reason", "meant")
    assert done.returncode == 2, done.stderr
    assert ".agent-eval/accept.yaml is a symbolic link" in done.stderr
    assert (repo.root / "notes.yaml").read_text() == "- {case: a, reason: mine}\n"


PLANTING = """
import os
from pathlib import Path

from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types

OUT = Path(os.environ["PLANTED_IN"])


def planted(name, target):
    place = OUT / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


class Planter(BaseAgent):
    async def _run_async_impl(self, ctx):
        target = os.environ["PLANTED_TO"]
        for name in ("results.json", "junit.xml", "comment.md", "report.html", "logs/bot.log", "anything/else"):
            planted(name, target + "/config")
        if "blobs" in os.environ["PLANTED"]:
            planted("blobs", target)
        print("[core] fsmonitor = /tmp/run-me", flush=True)
        yield Event(author=self.name, content=types.Content(role="model", parts=[
            types.Part(text="hello there"),
            types.Part(inline_data=types.Blob(data=b"x" * 100_000, mime_type="image/png")),
        ]))


root_agent = Planter(name="bot")
"""


@pytest.mark.parametrize(("planted", "code"), [("files", 0), ("blobs and files", 3)])
def test_links_that_an_agent_of_our_user_plants_are_neither_followed_nor_uploaded(
    repo, precious, adk213_python, planted, code
):
    repo.write("bot/agent.py", PLANTING)
    config = f"agent: bot\npython: {adk213_python}\nenv: [PLANTED, PLANTED_IN, PLANTED_TO]\nworkers: 1\n"
    repo.write("agent-eval.yaml", config)
    before = everything(precious)
    done = repo("run", PLANTED=planted, PLANTED_IN=str(repo.root / OUT), PLANTED_TO=str(precious))
    assert everything(precious) == before
    assert "Traceback" not in done.stderr, done.stderr
    assert [path for path in (repo.root / OUT).rglob("*") if path.is_symlink()] == []
    assert done.returncode == code, done.stderr
    assert (repo.root / OUT / "results.json").is_file() is (code == 0)
    assert ("blobs is a symbolic link" in done.stderr) is (code == 3)
    assert f"{OUT}/anything/else was a symbolic link and is removed" in done.stderr
