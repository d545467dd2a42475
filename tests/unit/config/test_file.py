"""agent-eval.yaml: every problem at once with its line, and files that mean harm."""

from __future__ import annotations

import os

import pytest

from agent_eval_action.errors import ConfigError


def test_every_problem_of_the_file_is_reported_at_once_with_its_line(workspace):
    workspace.agent("dice")
    assert workspace.refused("""\
agents:
  - path: dice
    pyhton: x
  - path: dcie
repeats: "3"
max_time: 45
gate:
  fail-on: fail
  max_drop: -1
  criteria:
    tokens: {max_ris: 10%}
concurency: 8
""") == [
        "agent-eval.yaml:3: unknown key `pyhton` of an agent at $.agents[0].pyhton — did you mean `python`?",
        'agent-eval.yaml:5: must be a whole number from 1 to 1000 at $.repeats (got "3")',
        "agent-eval.yaml:8: unknown key `fail-on` at $.gate.fail-on — did you mean `gate.fail_on`?",
        "agent-eval.yaml:9: must be a number from 0 like 0.05, or none at $.gate.max_drop (got -1)",
        "agent-eval.yaml:11: unknown key `max_ris` at $.gate.criteria.tokens.max_ris — did you mean `max_rise`?",
        "agent-eval.yaml:12: unknown key `concurency` at $.concurency — did you mean `concurrency`?",
        'agent-eval.yaml:4: there is no such agent folder (got "dcie") — did you mean `dice`?',
    ]


def test_a_key_in_the_wrong_section_is_sent_home(workspace):
    assert workspace.refused("max_drop: 0.1\n") == [
        "agent-eval.yaml:1: unknown key `max_drop` at $.max_drop — did you mean `gate.max_drop`?"
    ]
    assert workspace.refused("gate: {repeats: 3}\n") == [
        "agent-eval.yaml:1: unknown key `repeats` at $.gate.repeats — did you mean `repeats`?"
    ]


def test_criteria_written_here_carry_their_lines(workspace):
    workspace.agent("dice")
    workspace.write("agent-eval.yaml", "agent: dice\ncriteria:\n  response_match_score: 0.8\n")
    (spec,) = workspace.resolve().settings.agents[0].criteria
    assert (spec.name, spec.options, spec.line) == ("response_match_score", {"threshold": 0.8}, 3)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("repeats:\n", "agent-eval.yaml:1: is empty at $.repeats — give it a value or remove the key"),
        ("gate:\n", "agent-eval.yaml:1: must be a mapping at $.gate (got null)"),
        ("gate: 3\n", "agent-eval.yaml:1: must be a mapping at $.gate (got 3)"),
        ("agents: []\n", "agent-eval.yaml:1: names no agent at $.agents"),
        ("agents: 3\n", "agent-eval.yaml:1: must be an agent's folder, or a mapping with its path at $.agents (got 3)"),
        ("agents: [{name: x}]\n", "agent-eval.yaml:1: an agent needs a path at $.agents[0]"),
        ("agents: [{path: 3}]\n", "agent-eval.yaml:1: must be text at $.agents[0].path (got 3)"),
        ("- agent: dice\n", "agent-eval.yaml:1: must be a mapping of keys to values — begin with agent: FOLDER"),
        ("just words\n", "agent-eval.yaml:1: must be a mapping of keys to values — begin with agent: FOLDER"),
        ("criteria: missing.json\n", "agent-eval.yaml:1: names a criteria file that does not exist at $.criteria"),
        (
            "gate: {confidence: 1}\n",
            "agent-eval.yaml:1: must be a number from 0.5 to 0.9999 at $.gate.confidence (got 1)",
        ),
    ],
)
def test_wrong_shapes(workspace, config, said):
    problems = workspace.refused(config)
    assert problems[0].startswith(said)


def test_agent_and_agents_together_are_refused(workspace):
    workspace.agent("a")
    assert workspace.refused("agent: a\nagents: [a]\n") == [
        "agent-eval.yaml:2: is given beside another list of agents at $.agents — keep either agent or agents"
    ]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("config", "line", "said"),
    [
        pytest.param(BOMB, None, "aliases", id="alias bomb"),
        pytest.param("a: &a [*a]\n", 1, "contains itself", id="alias cycle"),
        pytest.param("repeats: !!python/object/apply:os.system [id]\n", 1, "tag", id="tag"),
        pytest.param("repeats: 1\nrepeats: 2\n", 2, "key twice", id="duplicate key"),
        pytest.param("gate:\n\tmax_drop: 1\n", 2, "not valid YAML", id="tab"),
        pytest.param(b"repeats: 1\nagent: caf\xe9\n", 2, "is not UTF-8", id="not UTF-8"),
        pytest.param("repeats: 3\n".encode("utf-16"), 1, "UTF-16", id="UTF-16"),
        pytest.param(b"repeats: 1\0\n", 1, "NUL", id="NUL"),
        pytest.param("", None, "is empty", id="empty"),
        pytest.param("# nothing yet\n", None, "is empty", id="comments only"),
        pytest.param("repeats: 1\n---\nrepeats: 2\n", None, "not valid YAML", id="two documents"),
        pytest.param("? [a, b]\n: 1\n", 1, "plain word", id="list as key"),
        pytest.param("a: " + "[" * 1500, None, "", id="deep"),
        pytest.param('repeats: "3\n', None, "not valid YAML", id="open quote"),
    ],
)
def test_hostile_yaml_is_one_problem(workspace, config, line, said):
    workspace.write("agent-eval.yaml", config)
    with pytest.raises(ConfigError) as caught:
        workspace.resolve()
    (problem,) = caught.value.problems
    assert said in problem.message
    assert line is None or problem.line == line


def test_a_huge_file_is_refused_unread(workspace):
    file = workspace.write("agent-eval.yaml", "repeats: 1\n")
    os.truncate(file, 100 * 1024 * 1024)
    assert "larger than" in workspace.refused()[0]


def test_a_link_out_of_the_workspace_is_refused(workspace, tmp_path):
    (tmp_path / "secret.yaml").write_text("repeats: 3\n")
    (workspace.root / "agent-eval.yaml").symlink_to(tmp_path / "secret.yaml")
    assert "outside the workspace" in workspace.refused()[0]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("repeats: yes\n", 'from 1 to 1000 at $.repeats (got "yes")'),
        ("repeats: true\n", "from 1 to 1000 at $.repeats (got true)"),
        ("gate: {max_drop: .nan}\n", "must be a number from 0"),
        ("gate: {max_drop: .inf}\n", "must be a number from 0"),
        ("gate: {max_drop: true}\n", "must be a number from 0"),
        ("max_time: .inf\n", "must be a time like"),
        ("agent: 2024-01-01\n", "there is no such agent folder"),
        ("python: 3.11\n", "must be text at $.python (got 3.11) — put it in quotes"),
        ("env: {LIMIT: 5}\n", "LIMIT must be text at $.env.LIMIT — put the value in quotes"),
    ],
)
def test_values_that_yaml_turns_into_something_else(workspace, config, said):
    assert said in workspace.refused(config)[0]


def test_norway_keeps_its_name_and_off_is_off(workspace):
    workspace.agent("dice")
    workspace.write("agent-eval.yaml", "agent: dice\nenv: {COUNTRY: NO, X: on}\ngate: {threshold_on: off}\n")
    settings = workspace.resolve().settings
    assert settings.agents[0].env == {"COUNTRY": "NO", "X": "on"}
    assert settings.policy.threshold_on == "off"


def test_anchors_and_merges_are_plain_yaml(workspace):
    workspace.agent("a")
    workspace.agent("b")
    workspace.write("agent-eval.yaml", "agents:\n  - &one {path: a, timeout_s: 5}\n  - {<<: *one, path: b}\n")
    assert [(agent.name, agent.timeout_s) for agent in workspace.resolve().settings.agents] == [("a", 5), ("b", 5)]
