"""The walk: which folders hold an agent, which files are eval files, and what is never looked into."""

from __future__ import annotations

import os

import pytest

from agent_eval_action.config.walk import TooManyEntries, files_below, holds_agent, texts_below, walk


def relative(root, paths):
    return [path.relative_to(root).as_posix() for path in paths]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("agent.py", "root_agent = Agent()", True),
        ("agent.py", "async def get_agent_async():\n    ...", True),
        ("agent.py", "from google.adk.apps import App\napp = App(name='x')", True),
        ("agent.py", "from google.adk.apps import App\napp: App = App(name='x')", True),
        ("agent.py", "from google.adk import x\nfrom .app import app", True),
        ("agent.py", "from flask import Flask\napp = Flask(__name__)", False),
        ("agent.py", "class Agent: ...", False),
        ("agent.py", "from google.adk.agents import Agent\n\nroot = Agent(\n", True),  # does not parse
        ("agent.py", "from google.adk.agents import Agent\n<<<<<<< HEAD\n", True),
        ("agent.py", "from google.adk.agents import Agent\n\0", True),
        ("agent.py", "from google.adk.agents import Agent\n\nroot = Agent()\n", False),
        ("agent.py", "print 'another program of that name'", False),
        ("agent.py", "my_root_agents = 1", False),
        ("__init__.py", "from .impl import root_agent", True),
        ("__init__.py", "from . import agent", False),
        ("root_agent.yaml", "name: x", True),
        ("main.py", "root_agent = Agent()", False),
    ],
)
def test_what_makes_a_folder_an_agents(workspace, name, text, found):
    workspace.write(f"a/{name}", text)
    assert relative(workspace.root, walk(workspace.root).agents) == (["a"] if found else [])


FIXTURE = '{"events": [{"author": "user", "content": {"parts": [{"text": "hi"}]}}]}'


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("bot/tests/hi.json", FIXTURE, True),
        ("bot/tests/hi_xfail.json", FIXTURE, False),  # `adk test` does not expect it to pass
        ("bot/tests/hi.json", '{"events": [{"kind": "click"}]}', False),
        ("bot/tests/deep/hi.json", FIXTURE, False),
        ("bot/data/hi.json", FIXTURE, False),
        ("tests/hi.json", FIXTURE, False),
        ("package/tests/hi.json", FIXTURE, False),
        ("bot/tests/core/hi/spec.yaml", "user_messages: []", True),
        ("bot/tests/core/other/spec.yaml", "openapi: 3.1.0", False),
    ],
)
def test_recordings_are_found_where_google_adk_finds_them(workspace, name, text, found):
    workspace.write("bot/agent.py", "root_agent = Agent()")
    workspace.write("package/__init__.py", "")
    workspace.write("bot/tests/core/hi/generated-recordings-sse.yaml", "")
    workspace.write(name, text)
    assert relative(workspace.root, walk(workspace.root).eval_files) == ([name] if found else [])


@pytest.mark.parametrize(
    ("manifest", "found"),
    [
        ('name: "shop"\nagent_directory: "bot"\nlanguage: "go"\n', ["shop/bot"]),
        ("language: go\n", ["shop/app"]),
        ("language: go # Go\nagent_directory: 'bot'\n", ["shop/bot"]),
        ('agent_directory: "bot"\nlanguage: "python"\n', []),
        ("language: go\nagent_directory: nowhere\n", []),
        ("language: go\nagent_directory: ../out\n", []),
        ("language: go\nagent_directory: .\n", []),
        ("create_params:\n  language: go\n", []),
    ],
)
def test_a_go_project_of_agents_cli_names_its_agent(workspace, manifest, found):
    workspace.write("shop/agents-cli-manifest.yaml", manifest)
    for folder in ("shop/app", "shop/bot", "out"):
        workspace.write(f"{folder}/agent.go", "package app\n")
    assert relative(workspace.root, walk(workspace.root).go_agents) == found


def test_a_fifo_or_a_folder_called_agent_py_holds_nobody_up(workspace):
    (workspace.root / "a").mkdir()
    os.mkfifo(workspace.root / "a" / "agent.py")
    (workspace.root / "b" / "agent.py").mkdir(parents=True)
    assert not holds_agent(workspace.root / "a", ["agent.py"])
    assert walk(workspace.root).agents == ()


def test_the_beginnings_of_files_are_read_and_a_fifo_among_them_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "a.py")
    (tmp_path / "b.py").write_text("environ['NAME']")
    (tmp_path / "c.txt").write_text("no code")
    found = {path.name: text for path, text in texts_below(tmp_path, (".py",), max_entries=10, size=7)}
    assert found == {"a.py": b"", "b.py": b"environ"}
    assert len(list(texts_below(tmp_path, (".py",), max_entries=2, size=7))) <= 2


def test_what_is_hidden_built_or_installed_is_left_out(workspace):
    for folder in (".hidden", "node_modules/x", "build/lib", "lib/site-packages/y", "venv", "__pycache__", "myenv"):
        workspace.agent(folder)
        workspace.write(f"{folder}/x.evalset.json")
    workspace.write("myenv/pyvenv.cfg")
    workspace.agent("real")
    workspace.write("real/x.evalset.json")
    seen = walk(workspace.root)
    assert relative(workspace.root, seen.agents) == ["real"]
    assert relative(workspace.root, seen.eval_files) == ["real/x.evalset.json"]


def test_tests_hold_eval_files_and_no_agents(workspace):
    workspace.agent("tests/fixtures/a")
    workspace.write("tests/eval/x.test.json")
    seen = walk(workspace.root)
    assert seen.agents == ()
    assert relative(workspace.root, seen.eval_files) == ["tests/eval/x.test.json"]


def test_a_workspace_that_lies_in_tests_or_in_an_environment_is_looked_through(workspace):
    workspace.agent("tests/repo/a")
    workspace.write("tests/repo/pyvenv.cfg")
    assert len(walk(workspace.root / "tests" / "repo").agents) == 1


def test_only_the_two_suffixes_are_eval_files(workspace):
    for name in ("a.evalset.json", "b.test.json", "tsconfig.test.json", "c.json", "test.json", "d.evalset_result.json"):
        workspace.write(name)
    (workspace.root / "folder.test.json").mkdir()
    assert relative(workspace.root, walk(workspace.root).eval_files) == ["a.evalset.json", "b.test.json"]


def test_links_to_folders_are_not_followed(workspace, tmp_path):
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "x.evalset.json").write_text("{}")
    workspace.write("real/x.evalset.json")
    (workspace.root / "away").symlink_to(tmp_path / "away")
    (workspace.root / "loop").symlink_to(workspace.root)
    assert relative(workspace.root, walk(workspace.root).eval_files) == ["real/x.evalset.json"]


def test_the_order_is_that_of_the_names(workspace):
    for name in ("b/x.test.json", "a/z.test.json", "a/b/c.test.json", "c.test.json"):
        workspace.write(name)
    found = relative(workspace.root, walk(workspace.root).eval_files)
    assert found == ["a/b/c.test.json", "a/z.test.json", "b/x.test.json", "c.test.json"]


def test_the_walk_is_bounded_and_says_so(workspace):
    for number in range(10):
        workspace.write(f"{number}/x.test.json")
    assert len(walk(workspace.root).eval_files) == 10
    with pytest.raises(TooManyEntries):
        walk(workspace.root, max_entries=14)
    with pytest.raises(TooManyEntries):
        list(files_below(workspace.root, max_entries=14))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_holds_nothing(workspace):
    workspace.write("shut/x.test.json")
    (workspace.root / "shut").chmod(0)
    assert walk(workspace.root).eval_files == ()
    (workspace.root / "shut").chmod(0o755)
