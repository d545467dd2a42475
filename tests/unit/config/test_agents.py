"""Agents as configured: whose word counts, what they are called, and folders that cannot be."""

from __future__ import annotations

import pytest


def test_an_agent_has_its_own_words_over_the_files_and_flags_over_both(workspace):
    workspace.agent("a")
    workspace.agent("b")
    workspace.write(
        "agent-eval.yaml",
        "timeout_s: 10\nworkers: 2\nenv: [X]\nagents:\n  - {path: a, timeout_s: 20, env: [Y]}\n  - b\n",
    )
    agents = workspace.resolve().settings.agents
    assert [(agent.timeout_s, agent.workers, agent.env) for agent in agents] == [
        (20, 2, {"Y": None}),
        (10, 2, {"X": None}),
    ]
    flagged = workspace.resolve(timeout_s="30").settings
    assert [agent.timeout_s for agent in flagged.agents] == [30, 30]
    assert flagged.agent_defaults.timeout_s == 30


def test_evals_are_an_agents_own_or_the_runs_and_an_input_replaces_both(workspace):
    workspace.agent("a")
    workspace.write("agent-eval.yaml", "agents: [{path: a, evals: own.json}]\nevals: [all.json]\n")
    said = workspace.resolve().settings
    assert [pattern.pattern for pattern in said.agents[0].evals] == ["own.json"]
    assert [pattern.pattern for pattern in said.evals] == ["all.json"]
    replaced = workspace.resolve(environ={"INPUT_EVALS": "x.json"}).settings
    assert replaced.agents[0].evals == ()
    assert [pattern.pattern for pattern in replaced.evals] == ["x.json"]


@pytest.mark.parametrize("config", ["agent: dice\n", "agents: dice\n", "agent: {path: dice}\n", "agents: [dice]\n"])
def test_one_agent_may_be_written_short(workspace, config):
    workspace.agent("dice")
    workspace.write("agent-eval.yaml", config)
    (agent,) = workspace.resolve().settings.agents
    assert (agent.path, agent.name, agent.driver) == (workspace.root / "dice", "dice", "adk")


def test_a_flag_picks_configured_agents_by_folder_or_name_with_all_they_say(workspace):
    for name in ("x/a", "x/b", "c"):
        workspace.agent(name)
    workspace.write("agent-eval.yaml", "agents: [{path: x/a, name: first, workers: 3}, {path: x/b, workers: 4}]\n")
    by_folder = workspace.resolve(cwd="x", agent=["a"]).settings.agents
    assert [(agent.name, agent.workers) for agent in by_folder] == [("first", 3)]
    by_name = workspace.resolve(agent=["first", "b"]).settings.agents
    assert [(agent.name, agent.workers) for agent in by_name] == [("first", 3), ("b", 4)]
    another = workspace.resolve(agent=["c"]).settings.agents
    assert [(agent.path, agent.workers) for agent in another] == [(workspace.root / "c", None)]


def test_names_are_folders_and_where_two_agree_their_paths(workspace):
    for name in ("a/app", "b/app", "c"):
        workspace.agent(name)
    workspace.write("agent-eval.yaml", "agents: [a/app, b/app, c]\n")
    assert [agent.name for agent in workspace.resolve().settings.agents] == ["a/app", "b/app", "c"]


def test_the_workspace_itself_is_called_alike_on_every_machine(make_workspace):
    for name in ("checkout", "elsewhere"):
        workspace = make_workspace(name)
        workspace.agent(".")
        workspace.write("agent-eval.yaml", "agent: .\n")
        assert [agent.name for agent in workspace.resolve().settings.agents] == ["agent"]


def test_one_folder_twice_needs_two_names(workspace):
    workspace.agent("a")
    assert workspace.refused("agents: [a, a]\n") == [
        'agent-eval.yaml:1: two agents have this name (got "a") — give one of them another name'
    ]
    workspace.write("agent-eval.yaml", "agents: [{path: a, name: old}, {path: a, name: new}]\n")
    assert [agent.name for agent in workspace.resolve().settings.agents] == ["old", "new"]


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "..", ".", r"a\b", r"x\0y", r"x\ny", r"x\u202Ey", "x" * 201])
def test_a_name_is_a_name(workspace, name):
    workspace.agent("a")
    (said,) = workspace.refused(f'agents:\n  - path: a\n    name: "{name}"\n')
    assert said.startswith("agent-eval.yaml:3: ")


def test_folders_that_hold_no_agent(workspace, tmp_path):
    workspace.agent("dice")
    workspace.write("empty/readme.md")
    (tmp_path / "out").mkdir()
    (workspace.root / "link").symlink_to(tmp_path / "out")
    by_name = " — name the folder that holds agent.py or root_agent.yaml"
    inside = f" — start from a folder that holds the agent; the workspace is {workspace.root}"
    assert workspace.refused("agents: [dcie, dice/agent.py, empty, ../out, link]\n") == [
        'agent-eval.yaml:1: there is no such agent folder (got "dcie") — did you mean `dice`?',
        'agent-eval.yaml:1: an agent is a folder, this is a file (got "dice/agent.py") — path: dice',
        f'agent-eval.yaml:1: no agent in this folder: neither agent.py nor root_agent.yaml (got "empty"){by_name}',
        f'agent-eval.yaml:1: the agent\'s folder is outside the workspace (got "../out"){inside}',
        f'agent-eval.yaml:1: the agent\'s folder is outside the workspace (got "link"){inside}',
    ]


@pytest.mark.parametrize("file", ["root_agent.yaml", "agent/__init__.py", "__init__.py"])
def test_every_way_adk_finds_an_agent_will_do(workspace, file):
    workspace.write(f"a/{file}", "")
    workspace.write("agent-eval.yaml", "agent: a\n")
    assert workspace.resolve().settings.agents[0].name == "a"


def test_a_recording_makes_the_driver_and_needs_no_agent(workspace):
    workspace.write("old/attempts.jsonl", "")
    workspace.write("agent-eval.yaml", "agents: [{name: dice, recording: old}]\n")
    (agent,) = workspace.resolve().settings.agents
    assert (agent.driver, agent.recording, agent.name) == ("recorded", workspace.root / "old", "dice")


def test_a_recording_and_adk_or_neither_contradict(workspace):
    workspace.agent("a")
    assert (
        "a recording is given, and driver: adk"
        in workspace.refused("agents: [{path: a, driver: adk, recording: a}]\n")[0]
    )
    assert "needs a recording" in workspace.refused("agent: a\ndriver: recorded\n")[0]
