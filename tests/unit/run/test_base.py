"""The base commit's agent out of a real repository: which commit, which files, whose environment."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest

from agent_eval_action.agents.adk_server import AdkServerAgent
from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.environments.lock import LockFile
from agent_eval_action.environments.resolve import reason_env_not_reusable
from agent_eval_action.environments.runtime import AgentFolder
from agent_eval_action.git.repository import Repository, export_tree
from agent_eval_action.results.run_result import AgentConditions, AttemptError
from agent_eval_action.run.base_agents import AgentGroup, BaseCommit, BaseUnavailable, find_base, open_base_agents
from agent_eval_action.run.resources import make_base_driver

HINT = "actions/checkout: fetch-depth: 2"
GIT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"} | {
    f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


class Repo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *args: str) -> str:
        argv = ["git", *args]
        return subprocess.run(argv, cwd=self.folder, env=GIT, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            path = self.folder / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


def test_files_are_written_as_committed_and_no_filter_runs(repo: Repo, tmp_path: Path) -> None:
    (repo.folder / "deep").mkdir()
    (repo.folder / "deep" / "link").symlink_to("../a")
    (repo.folder / "run.sh").write_text("#!/bin/sh\n")
    (repo.folder / "run.sh").chmod(0o755)
    commit = repo.commit(a="one\r\n", **{".gitattributes": "* filter=evil text eol=crlf\n"})
    repo.git("config", "filter.evil.smudge", f"touch {tmp_path}/ran")
    (repo.folder / ".git" / "info").mkdir(exist_ok=True)
    before = {path: path.stat().st_mtime_ns for path in (repo.folder / ".git").rglob("*")}
    target = tmp_path / "out"
    target.mkdir()
    export_tree(Repository(repo.folder, os.environ), commit, target)
    found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir())
    assert found == [".gitattributes", "a", "deep/link", "run.sh"]
    assert (target / "a").read_bytes() == b"one\n", "as committed: git made one line end of two"
    assert os.access(target / "run.sh", os.X_OK)
    assert (target / "deep" / "link").readlink() == Path("../a")
    assert not (tmp_path / "ran").exists()
    assert {path: path.stat().st_mtime_ns for path in (repo.folder / ".git").rglob("*")} == before


def test_only_wanted_files_are_written_and_every_folder_is_made(repo: Repo, tmp_path: Path) -> None:
    for folder in ("deep", "kept"):
        (repo.folder / folder).mkdir()
    (repo.folder / "deep" / "data.bin").write_text("x" * 100)
    (repo.folder / "kept" / "a.json").write_text("{}")
    commit = repo.commit(a="one")
    target = tmp_path / "out"
    target.mkdir()
    export_tree(
        Repository(repo.folder, os.environ),
        commit,
        target,
        wanted=lambda path, size: path.endswith("n") and size < 9,
    )
    found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))
    assert found == ["deep", "kept", "kept/a.json"]


def test_a_tree_no_checkout_would_have_is_refused(repo: Repo, tmp_path: Path) -> None:
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=repo.folder, env=GIT, input=b"x", capture_output=True, check=True
    ).stdout.decode().strip()  # fmt: skip
    inner = _tree(repo, f"100644 blob {blob}\tconfig\n")
    tree = _tree(repo, f"040000 tree {inner}\t.GIT\n")
    commit = repo.git("commit-tree", tree, "-m", "x")
    with pytest.raises(ValueError, match="no checkout would have"):
        export_tree(Repository(repo.folder, os.environ), commit, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _tree(repo: Repo, lines: str) -> str:
    argv = ["git", "mktree", "--missing"]
    done = subprocess.run(argv, cwd=repo.folder, env=GIT, input=lines, text=True, capture_output=True, check=True)
    return done.stdout.strip()


def test_giving_up_ends_the_writing(repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit(a="1")
    given_up = threading.Event()
    given_up.set()
    (tmp_path / "out").mkdir()
    export_tree(Repository(repo.folder, os.environ), commit, tmp_path / "out", given_up)
    assert list((tmp_path / "out").iterdir()) == []


class Silent:
    """A driver that says nothing; what it was made with is what is looked at."""

    async def start(self) -> AgentConditions | AttemptError:
        return AgentConditions(agent="bot", path="bot")

    async def stop(self) -> None:
        pass


def settings_of(folder: Path, **environ: str) -> Settings:
    environ = {"GITHUB_WORKSPACE": str(folder), **environ}
    return resolve(flags={}, environ=environ, cwd=Path(environ["GITHUB_WORKSPACE"])).settings


def only(settings: Settings) -> AgentSettings:
    return settings.agents[0]


@pytest.fixture
def changed(repo: Repo) -> Repo:
    """A branch whose configuration and agent differ from main's."""
    repo.commit(
        bot__agent="",
        **{"bot__agent.py": "root_agent = 1\n", "agent-eval.yaml": "agent: {path: bot, env: {MODEL: old}}\n"},
    )
    repo.git("checkout", "-q", "-b", "change")
    repo.commit(**{"bot__agent.py": "root_agent = 2\n", "agent-eval.yaml": "agent: {path: bot, env: {MODEL: new}}\n"})
    return repo


async def opened(repo: Repo, made: list[Any], **environ: str) -> AgentGroup:
    settings = settings_of(repo.folder, **environ)
    found = find_base(settings, repo.git("rev-parse", "main"), os.environ, HINT)
    assert isinstance(found, BaseCommit)

    def make(agent: AgentSettings, workspace: Path) -> Any:
        made.append((agent, workspace, (agent.path / "agent.py").read_text()))
        return Silent()

    return await open_base_agents(found, list(settings.agents), make, {})


async def test_the_bases_agent_is_its_own_files_with_its_own_variables(changed: Repo) -> None:
    (changed.folder / "bot" / ".env").write_text("KEY=secret\n")
    made: list[Any] = []
    arm = await opened(changed, made)
    ((agent, workspace, text),) = made
    assert text == "root_agent = 1\n"
    assert agent.env == {"MODEL": "old"}, "what the change lets its agent see is part of the change"
    assert (agent.path / ".env").read_text() == "KEY=secret\n"
    assert arm.commit == changed.git("rev-parse", "main")
    await arm.stop()
    assert not workspace.exists()
    assert changed.git("status", "--porcelain", "--untracked-files=no") == ""


async def test_a_dotenv_of_the_change_stays_away_from_the_base(changed: Repo, tmp_path: Path) -> None:
    """In git, a link to a file, or below a linked folder: none of it is the job's own."""
    (tmp_path / "secret").write_text("KEY=stolen\n")
    changed.commit(bot__x="", **{".env": "KEY=spoilt\n"})
    (changed.folder / "bot" / ".env").symlink_to(tmp_path / "secret")
    made: list[Any] = []
    arm = await opened(changed, made)
    ((agent, workspace, _),) = made
    assert [path for path in (workspace / ".env", agent.path / ".env") if path.exists()] == []
    await arm.stop()


async def test_the_base_runs_with_its_own_interpreter_and_install_variables(repo: Repo) -> None:
    text = "agent: {{path: bot, python: {0}/bin/python, install_env: {{UV_DEFAULT_INDEX: 'https://{0}/'}}}}\n"
    repo.commit(**{"bot__agent.py": "root_agent = 1\n", "agent-eval.yaml": text.format("old")})
    repo.git("checkout", "-q", "-b", "change")
    repo.commit(**{"bot__agent.py": "root_agent = 2\n", "agent-eval.yaml": text.format("new")})
    made: list[Any] = []
    arm = await opened(repo, made)
    ((agent, workspace, _),) = made
    assert agent.python == workspace / "old" / "bin" / "python"
    assert agent.install_env == {"UV_DEFAULT_INDEX": "https://old/"}
    await arm.stop()


@pytest.mark.parametrize(
    ("option", "commands"),
    [("command: python serve.py {0}", [("python", "serve.py", "old")]), ("url: http://h/{0}", [])],
    ids=["command", "url"],
)
async def test_a_server_runs_by_the_bases_own_command_and_not_at_its_url(
    repo: Repo, option: str, commands: Any
) -> None:
    for side in ("old", "new"):
        text = f"agent: {{path: bot, driver: openai, {option.format(side)}}}\n"
        repo.commit(**{"bot__agent.py": f"# {side}\n", "agent-eval.yaml": text})
        if side == "old":
            repo.git("checkout", "-q", "-b", "change")
    made: list[Any] = []
    arm = await opened(repo, made)
    await arm.stop()
    assert [agent.command for agent, *_ in made] == commands
    assert ("its url" in arm.missing.get("bot", "")) == (not commands)


@pytest.mark.parametrize("tracked", [False, True], ids=["of the job", "of the change"])
async def test_a_server_of_the_base_finds_the_programs_of_the_checkout(repo: Repo, tracked: bool) -> None:
    text = "agent: {path: bot, driver: adk_server, command: 'adk api_server --port {port}'}\n"
    repo.commit(**{"bot__agent.py": "# old\n", "agent-eval.yaml": text, ".gitignore": "" if tracked else ".venv\n"})
    repo.git("checkout", "-q", "-b", "change")
    venv = repo.folder / ".venv"
    EnvBuilder(symlinks=True).create(venv)
    repo.commit(**{"bot__agent.py": "# new\n"})
    made: list[Any] = []
    arm = await opened(repo, made)
    ((agent, workspace, _),) = made
    base = find_base(settings_of(repo.folder), repo.git("rev-parse", "main"), os.environ, HINT)
    assert isinstance(base, BaseCommit)
    driver = make_base_driver(AgentGroup("head"), base, os.environ, agent, workspace)
    await arm.stop()
    assert isinstance(driver, AdkServerAgent)
    assert driver.context.agent.python == (None if tracked else venv / "bin" / "python")


async def test_variables_of_a_flag_hold_for_both(changed: Repo) -> None:
    made: list[Any] = []
    arm = await opened(changed, made, INPUT_ENV="MODEL=flag")
    assert made[0][0].env == {"MODEL": "flag"}
    await arm.stop()


@pytest.mark.parametrize("moved", [".github/agent-eval.yaml", "ci/evals.yaml"])
async def test_the_base_is_configured_by_its_own_file_where_the_change_moves_it(changed: Repo, moved: str) -> None:
    """Main's agent without its variables could be as bad as the change's, or could not be run at all."""
    target = changed.folder / moved
    target.parent.mkdir()
    changed.git("mv", "agent-eval.yaml", moved)
    target.write_text(f"agent: {{path: {changed.folder}/bot, env: {{MODEL: new}}}}\n")
    changed.commit()
    made: list[Any] = []
    arm = await opened(changed, made, **({"INPUT_CONFIG": moved} if moved.startswith("ci") else {}))
    assert [agent.env for agent, *_ in made] == [{"MODEL": "old"}]
    await arm.stop()


@pytest.mark.parametrize("inner", ["", "project"])
async def test_an_agent_in_a_submodule_is_that_of_the_commit_which_the_base_names(
    repo: Repo, tmp_path: Path, inner: str
) -> None:
    source = Repo(tmp_path / "source")
    source.commit(**{"agent.py": "root_agent = 1\n"})
    workspace = repo.folder / inner
    workspace.mkdir(exist_ok=True)
    (workspace / "agent-eval.yaml").write_text("agent: bot\n")
    bot = (Path(inner) / "bot").as_posix()
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source.folder), bot)
    repo.commit()
    repo.git("checkout", "-q", "-b", "change")
    (repo.folder / bot / "agent.py").write_text("root_agent = 2\n")
    repo.git("-C", bot, "commit", "-qam", "x")
    repo.commit()
    made: list[Any] = []
    arm = await opened(repo, made, GITHUB_WORKSPACE=str(workspace))
    assert [text for *_, text in made] == ["root_agent = 1\n"]
    await arm.stop()


async def test_an_agent_the_base_does_not_have_is_reported(repo: Repo) -> None:
    repo.commit(a="1")
    repo.git("checkout", "-q", "-b", "change")
    repo.commit(**{"bot__agent.py": "", "agent-eval.yaml": "agent: bot\n"})
    said = await opened(repo, [])
    assert said.drivers == {}
    assert said.missing["bot"] == f"the base commit {repo.git('rev-parse', 'main')[:10]} has no agent in bot"
    assert said.absent == {"bot"}
    assert [path for path in (repo.folder / ".agent-eval" / "cache" / "base").iterdir() if path.is_dir()] == []


async def test_a_function_in_a_folder_that_was_no_agents_is_new(repo: Repo) -> None:
    repo.commit(a="1")
    repo.git("checkout", "-q", "-b", "change")
    agent = 'agent: {path: ".", driver: python, function: "answer:reply", name: bot}\n'
    repo.commit(**{"answer.py": "", "agent-eval.yaml": agent})
    said = await opened(repo, [])
    assert said.drivers == {}
    assert said.absent == {"bot"}


async def test_an_agent_the_base_does_not_have_leaves_the_others(changed: Repo) -> None:
    text = "agents: [{path: bot, env: {MODEL: new}}, helper]\n"
    changed.commit(**{"helper__agent.py": "", "agent-eval.yaml": text})
    made: list[Any] = []
    arm = await opened(changed, made)
    assert [agent.name for agent, _, _ in made] == ["bot"]
    assert arm.missing == {"helper": f"the base commit {arm.commit[:10]} has no agent in helper"}
    assert arm.absent == {"helper"}
    await arm.stop()


async def test_an_agent_folder_that_is_a_link_out_of_the_tree_is_none(repo: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "agent.py").write_text("")
    (repo.folder / "bot").symlink_to(outside)
    repo.commit(**{"agent-eval.yaml": "agent: bot\n"})
    repo.git("checkout", "-q", "-b", "change")
    (repo.folder / "bot").unlink()
    repo.commit(**{"bot__agent.py": ""})
    said = await opened(repo, [])
    assert said.missing["bot"].endswith("has no agent in bot")


async def test_two_runs_at_once_have_trees_of_their_own(changed: Repo) -> None:
    made: list[Any] = []
    arms = await asyncio.gather(opened(changed, made), opened(changed, made))
    assert len({workspace for _, workspace, _ in made}) == 2
    for arm in arms:
        await arm.stop()


def test_what_a_killed_run_left_is_used_anew(changed: Repo) -> None:
    found = find_base(settings_of(changed.folder), changed.git("rev-parse", "main"), os.environ, HINT)
    assert isinstance(found, BaseCommit)
    left = changed.folder / ".agent-eval" / "cache" / "base" / found.commit[:12]
    left.mkdir(parents=True)
    (left / "stale.py").write_text("")

    async def go() -> None:
        made: list[Any] = []
        arm = await opened(changed, made)
        assert made[0][1] == left
        assert not (left / "stale.py").exists()
        await arm.stop()

    asyncio.run(go())


def test_outside_of_git_there_is_no_base(tmp_path: Path) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.py").write_text("")
    (tmp_path / "agent-eval.yaml").write_text("agent: bot\n")
    said = find_base(settings_of(tmp_path), None, os.environ, HINT)
    assert isinstance(said, BaseUnavailable)
    assert said.reason == "this is no git repository"


def test_what_nothing_names_and_what_cannot_be_had_is_reported(repo: Repo) -> None:
    repo.commit(**{"bot__agent.py": "", "agent-eval.yaml": "agent: bot\n"})
    unknown = find_base(settings_of(repo.folder), None, os.environ, HINT)
    assert isinstance(unknown, BaseUnavailable)
    assert unknown.reason == "git names no commit this one is merged onto"
    absent = find_base(settings_of(repo.folder), "f" * 40, os.environ, HINT)
    assert absent == BaseUnavailable(f"the base commit ffffffffff is not in this clone ({HINT})", "f" * 40)


def places(tmp_path: Path, ours: str, theirs: str) -> tuple[AgentFolder, AgentFolder]:
    found = []
    for name, text in (("ours", ours), ("theirs", theirs)):
        folder = tmp_path / name / "bot"
        folder.mkdir(parents=True)
        (tmp_path / name / "requirements.txt").write_text(text)
        found.append(AgentFolder(folder, tmp_path / name))
    return found[0], found[1]


def test_an_environment_is_shared_where_both_need_the_same(tmp_path: Path) -> None:
    assert reason_env_not_reusable(Path(sys.executable), *places(tmp_path, "a==1\n", "a==1\n"), os.environ) == ""


def test_an_environment_is_not_shared_where_the_packages_differ(tmp_path: Path) -> None:
    why = reason_env_not_reusable(Path(sys.executable), *places(tmp_path, "a==1\n", "a==2\n"), os.environ)
    assert why == "they need other packages"


def test_an_environment_with_this_trees_own_code_in_it_is_not_shared(tmp_path: Path) -> None:
    ours, theirs = places(tmp_path, "", "")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = (venv / "lib").glob("python*/site-packages")
    assert reason_env_not_reusable(venv / "bin" / "python", ours, theirs, os.environ) == ""
    (site / "ours.pth").write_text(f"{ours.workspace}/src\n")
    assert (
        reason_env_not_reusable(venv / "bin" / "python", ours, theirs, os.environ)
        == "ours.pth of this tree is installed in it"
    )
    (site / "ours.pth").unlink()
    info = site / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "direct_url.json").write_text('{"url": "file://' + str(ours.workspace) + '", "dir_info": {}}')
    assert (
        reason_env_not_reusable(venv / "bin" / "python", ours, theirs, os.environ)
        == "shop of this tree is installed in it"
    )


@pytest.mark.parametrize(
    ("text", "same"),
    [("a==1\n", True), ("a==1 \\\n    --hash=sha256:00\n", True), ("-e .\n", False), ("./wheels/a.whl\n", False)],
)
def test_requirements_of_an_index_are_built_once_for_both_trees(tmp_path: Path, text: str, same: bool) -> None:
    ours, theirs = places(tmp_path, text, text)
    digests = {LockFile(one.workspace / "requirements.txt", one.workspace).digest({}) for one in (ours, theirs)}
    assert (len(digests) == 1) is same
