"""Which eval files run against which agents: as found, as configured, as named; and what is said about it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.config.discovery import Discovery, discover, set_keys
from agent_eval_action.errors import EvalFileError, Problem


def app_names(path: Path) -> frozenset[str]:
    """Stands where formats is wired in: {"app": "name"} instead of an eval set."""
    if path.read_text() == "broken":
        raise EvalFileError("cannot be read", problems=(Problem(path, "is broken", 1),))
    return frozenset(filter(None, [json.loads(path.read_text()).get("app")]))


def run(workspace, *selectors: str | tuple[Path, Sequence[str]], **given_settings) -> Discovery:
    chosen = [(workspace.root / s, ()) if isinstance(s, str) else s for s in selectors]
    return discover(workspace.resolve(**given_settings).settings, chosen, app_names)


def planned(workspace, *selectors, **given_settings) -> list[str]:
    return [f"{found.agent.name} / {found.key}" for found in run(workspace, *selectors, **given_settings).sets]


def refused(workspace, *selectors, **given_settings) -> list[str]:
    with pytest.raises(EvalFileError) as caught:
        run(workspace, *selectors, **given_settings)
    lines = [str(problem) for problem in caught.value.problems] or [str(caught.value)]
    return [line.replace(f"{workspace.root}/", "") for line in lines]


def test_nothing_configured_everything_found_and_said(workspace):
    workspace.agent("dice")
    workspace.agent("idle")
    workspace.write("dice/b.evalset.json")
    workspace.write("dice/a.test.json")
    workspace.write("dice/sub/c.test.json")
    workspace.write("dice/test_config.json")
    found = run(workspace)
    scores = "tool_trajectory_avg_score 1.0, response_match_score 0.8"
    assert [(item.agent.name, item.key) for item in found.sets] == [
        ("dice", "dice/a"),
        ("dice", "dice/b"),
        ("dice", "dice/sub/c"),
    ]
    assert found.notes == (
        "agent dice in dice (discovered): 3 eval files",
        f"no test_config.json beside 1 eval file: ADK's defaults apply ({scores})",
    )
    assert found.left_out == ("not run, no eval files: idle",)


def test_traces_of_agents_cli_are_named_and_left_alone(workspace):
    workspace.agent("shop")
    workspace.write("tests/eval/datasets/basic-dataset.json", '{"eval_cases": [{"eval_case_id": "a"}]}')
    note = "artifacts/traces holds what the agent answered in earlier runs, which is not scored"
    assert not any(note in said for said in run(workspace).notes)
    workspace.write("artifacts/traces/traces_1.json")
    found = run(workspace)
    assert [item.key for item in found.sets] == ["tests/eval/datasets/basic-dataset"]
    assert any(note in said for said in found.notes)


def test_the_test_files_of_a_set_are_eval_files_each_once(workspace):
    workspace.agent("dice")
    listed = {"eval_set_id": "s", "name": "s", "test_files": ["a.test.json", "../more/b.json", "s.evalset.json"]}
    workspace.write("dice/s.evalset.json", json.dumps(listed))
    workspace.write("dice/a.test.json")
    workspace.write("more/b.json", json.dumps({"test_files": ["c.json"]}))
    workspace.write("more/c.json")
    expected = ["dice / dice/a", "dice / dice/s", "dice / more/b", "dice / more/c"]
    assert planned(workspace) == planned(workspace, "dice/s.evalset.json") == expected
    assert planned(workspace, (workspace.root / "dice/s.evalset.json", ("a",))) == ["dice / dice/s"]


def test_test_files_that_are_not_there_are_refused_at_their_line(workspace):
    workspace.agent("dice")
    workspace.write(
        "dice/s.evalset.json", '{"test_files": [\n"no.json",\n3,\n"\\u0000",\n"/etc/passwd",\n"%s"]}' % ("A" * 9999)
    )
    assert [line.partition(" (got")[0] for line in refused(workspace)] == [
        "dice/s.evalset.json:2: there is no such eval file at $.test_files[0]",
        "dice/s.evalset.json:3: there is no such eval file at $.test_files[1]",
        "dice/s.evalset.json:4: there is no such eval file at $.test_files[2]",
        "dice/s.evalset.json:5: there is no such eval file at $.test_files[3]",
        "dice/s.evalset.json:6: there is no such eval file at $.test_files[4]",
    ]


def test_discovered_agents_have_the_options_at_the_top(workspace):
    workspace.agent("dice")
    workspace.write("dice/a.test.json")
    (found,) = run(workspace, timeout_s="7").sets
    assert found.agent.timeout_s == 7


@pytest.mark.parametrize(
    ("agents", "file", "owner"),
    [
        (["a", "b"], "a/x.test.json", "a"),
        (["a", "a/sub"], "a/sub/deep/x.test.json", "sub"),
        (["a", "a/sub"], "a/evals/x.test.json", "a"),
        (["p/a", "q/b"], "p/tests/eval/x.test.json", "a"),
        (["p/a", "q/b"], "p/x.test.json", "a"),
        (["src/pkg/a"], "tests/eval/x.test.json", "a"),
        (["a", "p/b"], "evals/x.test.json", "a"),
        (["."], "evals/x.test.json", "agent"),
    ],
)
def test_a_file_belongs_to_the_nearest_agent_above_or_beside_it(workspace, agents, file, owner):
    for folder in agents:
        workspace.agent(folder)
    workspace.write(file)
    assert [found.agent.name for found in run(workspace).sets] == [owner]


def test_between_two_neighbours_the_app_name_decides(workspace):
    workspace.agent("a")
    workspace.agent("b")
    workspace.write("evals/x.test.json", '{"app": "b"}')
    assert planned(workspace) == ["b / evals/x"]


def test_without_a_neighbour_the_app_name_decides(workspace):
    workspace.agent("p/a")
    workspace.agent("q/b")
    workspace.write("evals/x.test.json", '{"app": "b"}')
    assert planned(workspace) == ["b / evals/x"]


def test_files_of_nobody_are_an_error_that_names_file_and_agents(workspace):
    workspace.agent("a")
    workspace.agent("b")
    workspace.agent("deep/er/c")
    workspace.agent("deep/er/d")
    workspace.write("one.test.json")
    workspace.write("two.test.json", '{"app": "z"}')
    workspace.write("three.test.json", "broken")
    hint = "name its agent: session_input.app_name in the file, or evals of an agent in agent-eval.yaml"
    assert refused(workspace) == [
        f"one.test.json: may belong to a or b — {hint}",
        "three.test.json:1: is broken",
        f"two.test.json: may belong to a or b — {hint}",
    ]
    for name in ("a", "b"):
        (workspace.root / name / "agent.py").unlink()
    workspace.write("three.test.json")
    assert refused(workspace)[0] == (
        f"one.test.json: lies beside no agent, and its session_input.app_name is none of: deep/er/c, deep/er/d — {hint}"
    )


def test_no_agent_and_no_eval_file_are_errors_and_never_a_pass(workspace):
    assert refused(workspace)[0].startswith("no agent found")
    workspace.agent("a")
    assert refused(workspace)[0].startswith("no eval files found: there is nothing to measure")
    workspace.write("a/x.test.json")
    workspace.agent("b")
    workspace.write("agent-eval.yaml", "agents: [a, b]\n")
    assert refused(workspace)[0].startswith("no eval files of b found")


def test_configured_agents_leave_other_agents_files_alone_and_say_so(workspace):
    for name in ("a", "b"):
        workspace.agent(name)
        workspace.write(f"{name}/x.test.json")
    workspace.write("agent-eval.yaml", "agent: a\n")
    found = run(workspace)
    assert [item.agent.name for item in found.sets] == ["a"]
    assert "not run: 1 eval file of b, which is not configured" in found.left_out


@pytest.mark.parametrize("others", [(), ("pkg/b",)])
def test_an_agent_asked_for_inside_a_larger_checkout_runs_its_own_files_alone(workspace, others):
    for name in ("pkg/a", *others):
        workspace.agent(name)
    for name in others:
        workspace.write(f"{name}/theirs.test.json")
    workspace.write("pkg/a/inside.test.json")
    workspace.write("samples/named.evalset.json", '{"app": "a"}')
    workspace.write("samples/of_nobody.evalset.json")
    workspace.write("docs/snippets/broken.test.json", "broken")
    found = run(workspace, agent=["pkg/a"])
    assert [item.path.name for item in found.sets] == ["inside.test.json", "named.evalset.json"]
    assert "not run: 2 eval files beside no agent (only a was asked for); name a file to run it" in found.left_out
    named = workspace.root / "samples/of_nobody.evalset.json"
    assert [item.path for item in run(workspace, str(named), agent=["pkg/a"]).sets] == [named]


def test_an_agent_asked_for_that_has_no_file_of_its_own_runs_those_left_to_it(workspace):
    workspace.agent("src/a")
    workspace.write("evals/x.test.json")
    assert planned(workspace, agent=["src/a"]) == ["a / evals/x"]


def test_an_agents_own_evals_are_its_own_and_nobody_elses(workspace):
    workspace.agent("a")
    workspace.agent("b")
    for file in ("shared/x.test.json", "shared/y.test.json", "b/z.test.json"):
        workspace.write(file)
    workspace.write("agent-eval.yaml", "agents: [{path: a, evals: shared/*.json}, b]\n")
    assert planned(workspace) == ["a / shared/x", "a / shared/y", "b / b/z"]


def test_two_agents_may_name_the_same_file(workspace):
    workspace.agent("a")
    workspace.write("x.json")
    workspace.write(
        "agent-eval.yaml", "agents: [{path: a, name: old, evals: x.json}, {path: a, name: new, evals: x.json}]\n"
    )
    assert planned(workspace) == ["new / x", "old / x"]
    assert planned(workspace, "x.json") == ["new / x", "old / x"]


def test_sets_of_an_agent_that_is_the_workspace_do_not_name_the_checkouts_folder(workspace):
    workspace.write("evals/x.evalset.json")
    workspace.write("agent-eval.yaml", "agent: {driver: python, function: 'a:b', name: shop, evals: evals}\n")
    assert planned(workspace) == ["shop / evals/x"]


def test_two_agents_in_one_folder_both_run_its_files(workspace):
    workspace.agent("a")
    workspace.write("a/x.test.json")
    workspace.write("agent-eval.yaml", "agents: [{path: a, name: old}, {path: a, name: new}]\n")
    assert planned(workspace) == ["new / a/x", "old / a/x"]


def test_the_runs_evals_replace_discovery(workspace):
    workspace.agent("a")
    workspace.agent("b")
    for file in ("a/x.test.json", "a/y.test.json", "b/x.test.json"):
        workspace.write(file)
    workspace.write("agent-eval.yaml", "agents: [a, b]\nevals: ['*/x.test.json']\n")
    assert planned(workspace) == ["a / a/x", "b / b/x"]


def test_evals_that_match_nothing_are_errors_at_their_line(workspace):
    workspace.agent("a")
    workspace.write("a/x.test.json")
    workspace.write("agent-eval.yaml", "agent: a\nevals:\n  - a/*.evalset.json\n  - a/y.test.json\n")
    problems = refused(workspace)
    assert problems[0].startswith('agent-eval.yaml:3: matches no file (got "a/*.evalset.json")')
    assert (
        problems[1]
        == 'agent-eval.yaml:4: there is no such eval file (got "a/y.test.json") — did you mean `x.test.json`?'
    )


def test_named_files_run_alone_with_their_cases(workspace):
    workspace.agent("a")
    workspace.write("a/x.test.json")
    workspace.write("a/y.test.json")
    x = workspace.root / "a" / "x.test.json"
    found = run(workspace, (x, ("one",)), (x, ("two",)))
    assert [(item.key, item.case_ids) for item in found.sets] == [("a/x", ("one", "two"))]
    assert [item.case_ids for item in run(workspace, (x, ("one",)), (x, ())).sets] == [()]
    assert [item.case_ids for item in run(workspace, (x, ()), (x, ("one",))).sets] == [()]
    assert planned(workspace, "a") == ["a / a/x", "a / a/y"]
    assert planned(workspace, "a/*.test.json") == ["a / a/x", "a / a/y"]


def test_a_named_file_that_is_not_there_is_an_error(workspace):
    workspace.agent("a")
    workspace.write("a/x.test.json")
    (problem,) = refused(workspace, "a/y.test.json")
    assert "there is no such eval file" in problem
    assert "did you mean `x.test.json`?" in problem


def test_a_named_file_runs_against_the_only_agent_wherever_it_lies(workspace):
    workspace.agent("a")
    workspace.agent("b")
    workspace.write("b/x.json")
    assert planned(workspace, "b/x.json", agent=["a"]) == ["a / b/x"]


def test_a_named_file_of_an_agent_that_is_not_configured_is_an_error(workspace):
    for name in ("a", "b", "c"):
        workspace.agent(name)
    workspace.write("c/x.test.json")
    workspace.write("agent-eval.yaml", "agents: [a, b]\n")
    assert refused(workspace, "c/x.test.json") == [
        "c/x.test.json: belongs to the agent c, which is not part of this run — --agent c"
    ]


def test_discovery_stays_below_where_it_starts(workspace):
    for name in ("svc/a", "other/b"):
        workspace.agent(name)
        workspace.write(f"{name}/x.test.json")
    assert planned(workspace, cwd="svc") == ["a / a/x"]


def test_criteria_are_the_agents_else_those_beside_the_file_else_none(workspace):
    workspace.agent("a")
    workspace.write("a/x.test.json")
    workspace.write("a/sub/y.test.json")
    beside = workspace.write("a/test_config.json")
    own = workspace.write("own.json", '{"criteria": {"response_match_score": 1}}')
    assert [item.criteria_file for item in run(workspace).sets] == [None, beside]
    assert [item.criteria_file for item in run(workspace, criteria=own).sets] == [own, own]
    workspace.write("agent-eval.yaml", "criteria: {response_match_score: 0.5}\n")
    found = run(workspace)
    assert [item.criteria_file for item in found.sets] == [None, None]
    assert all(item.agent.criteria for item in found.sets)
    assert not any("defaults" in note for note in found.notes)


def test_the_initial_session_is_the_one_beside_the_file_else_the_agents(workspace):
    workspace.agent("a")
    workspace.write("a/x.test.json")
    workspace.write("a/y.test.json")
    beside = workspace.write("a/x.session.json")
    common = workspace.write("s.json")
    assert [item.session_file for item in run(workspace).sets] == [beside, None]
    assert [item.session_file for item in run(workspace, initial_session_file=common).sets] == [beside, common]


def test_keys_are_paths_from_the_agents_parent_and_never_collide(tmp_path):
    agent = tmp_path / "svc" / "agent"

    def keys(*paths: str) -> list[str]:
        files = [tmp_path / path for path in paths]
        return list(set_keys(files, agent, tmp_path).values())

    assert keys("svc/agent/x.evalset.json", "svc/evals/x.test.json", "svc/y.json") == ["agent/x", "evals/x", "y"]
    assert keys("evals/x.test.json") == ["evals/x"]
    assert keys("svc/evals/x.test.json", "svc/evals/x.evalset.json") == [
        "svc/evals/x.test.json",
        "svc/evals/x.evalset.json",
    ]
    assert keys("svc/evals/x.test.json", "evals/x.test.json") == ["svc/evals/x.test.json", "evals/x.test.json"]


FOLDERS = st.sampled_from(["a", "a/sub", "p/b", "p/c", "tests/eval", "evals", "."])
FILES = st.builds("{}/{}.{}.json".format, FOLDERS, st.sampled_from("xy"), st.sampled_from(["evalset", "test"]))
NUMBERS = itertools.count()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    agents=st.lists(st.sampled_from(["a", "a/sub", "p/b", "p/c"]), min_size=1, unique=True),
    files=st.lists(FILES, min_size=1, unique=True),
    random=st.randoms(use_true_random=False),
)
def test_every_file_runs_once_or_is_named_as_a_problem_in_whatever_order_it_was_made(
    make_workspace, agents, files, random
):
    outcomes = []
    for _ in range(2):
        workspace = make_workspace(str(next(NUMBERS)))
        for action in random.sample([*((workspace.agent, a) for a in agents), *((workspace.write, f) for f in files)],
                                    len(agents) + len(files)):  # fmt: skip
            action[0](action[1])
        try:
            found = run(workspace)
        except EvalFileError as error:
            outcomes.append([problem.path.relative_to(workspace.root) for problem in error.problems])
            assert outcomes[-1]
            assert set(outcomes[-1]) <= {Path(file) for file in files}
        else:
            outcomes.append([(s.agent.name, s.key, s.path.relative_to(workspace.root)) for s in found.sets])
            assert sorted(path for *_, path in outcomes[-1]) == sorted(Path(file) for file in files)
            assert len({(name, key) for name, key, _ in outcomes[-1]}) == len(found.sets)
            assert outcomes[-1] == sorted(outcomes[-1], key=lambda item: item[:2])
    assert outcomes[0] == outcomes[1]
