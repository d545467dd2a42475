"""Where the workspace begins, and which configuration file is read."""

from __future__ import annotations

import pytest

from agent_eval_action.errors import ConfigError


def test_the_nearest_checkout_or_configuration_upwards_is_the_workspace(workspace):
    workspace.write("svc/agent-eval.yaml", "repeats: 2\n")
    (workspace.root / "svc" / "deep").mkdir()
    (workspace.root / "other").mkdir()
    inside = workspace.resolve(cwd="svc/deep").settings
    assert (inside.workspace, inside.repeats) == (workspace.root / "svc", 2)
    assert inside.start == workspace.root / "svc"
    outside = workspace.resolve(cwd="other").settings
    assert (outside.workspace, outside.start, outside.config) == (workspace.root, workspace.root / "other", None)


def test_githubs_checkout_wins_only_for_those_inside(workspace, tmp_path):
    (workspace.root / "sub" / ".git").mkdir(parents=True)
    inside = workspace.resolve(cwd="sub", environ={"GITHUB_WORKSPACE": str(workspace.root)})
    assert inside.settings.workspace == workspace.root
    elsewhere = workspace.resolve(cwd="sub", environ={"GITHUB_WORKSPACE": str(tmp_path / "runner")})
    assert elsewhere.settings.workspace == workspace.root / "sub"


def test_a_worktrees_git_is_a_file(workspace):
    workspace.write("tree/.git", "gitdir: elsewhere\n")
    assert workspace.resolve(cwd="tree").settings.workspace == workspace.root / "tree"


def test_without_any_sign_the_workspace_is_here(tmp_path, workspace):
    folder = tmp_path / "bare"
    folder.mkdir()
    assert workspace.resolve(cwd="../bare").settings.workspace == folder.resolve()


@pytest.mark.parametrize("name", ["agent-eval.yaml", "agent-eval.yml", ".github/agent-eval.yaml"])
def test_a_file_is_found_by_its_name(workspace, name):
    workspace.write(name, "repeats: 2\n")
    resolved = workspace.resolve()
    assert resolved.settings.repeats == 2
    assert resolved.notes == (f"configuration: {name}",)


def test_the_nearest_file_up_to_the_checkout_is_read(workspace):
    workspace.write("agent-eval.yaml", "repeats: 2\n")
    workspace.write("svc/agent-eval.yaml", "repeats: 3\n")
    on_github = {"GITHUB_WORKSPACE": str(workspace.root)}
    assert workspace.resolve(cwd="svc", environ=on_github).settings.repeats == 3
    assert workspace.resolve(environ=on_github).settings.repeats == 2


def test_two_files_side_by_side_are_one_too_many(workspace):
    workspace.write("agent-eval.yaml", "repeats: 2\n")
    workspace.write("agent-eval.yml", "repeats: 3\n")
    with pytest.raises(ConfigError, match="two configuration files"):
        workspace.resolve()


def test_a_named_file_must_exist_and_is_relative_to_who_names_it(workspace):
    workspace.write("svc/eval.yaml", "repeats: 4\nbaseline: b.json\n")
    settings = workspace.resolve(cwd="svc", config="eval.yaml").settings
    assert (settings.repeats, settings.baseline.path) == (4, workspace.root / "svc" / "b.json")
    assert workspace.resolve(environ={"INPUT_CONFIG": "svc/eval.yaml"}).settings.repeats == 4
    with pytest.raises(ConfigError, match="INPUT_CONFIG: there is no configuration file") as caught:
        workspace.resolve(environ={"INPUT_CONFIG": "svc/evl.yaml"})
    assert caught.value.hint == "did you mean `eval.yaml`?"


def test_paths_in_a_file_start_from_its_folder_and_githubs_from_the_workspace(workspace):
    workspace.agent("svc/a")
    workspace.write("svc/agent-eval.yaml", "agent: a\nout: o\n")
    own = workspace.resolve(config="svc/agent-eval.yaml").settings
    assert (own.agents[0].path, own.out) == (workspace.root / "svc" / "a", workspace.root / "svc" / "o")
    workspace.write(".github/agent-eval.yaml", "agent: svc/a\nout: o\n")
    github = workspace.resolve().settings
    assert (github.agents[0].path, github.out) == (workspace.root / "svc" / "a", workspace.root / "o")
    assert github.start == workspace.root
