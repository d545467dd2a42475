"""A change that loosens its own gate, in a real repository: said first, and judged by main's rules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.messages import headline, notes, sentence

UPDATE = ("baseline", "update", "--from", ".agent-eval/out")
CONFIG = "agent:\n  path: bot\n  name: bot\n  recording: recording\n  evals: evals\n"
RULES = "gate:\n  threshold_on: case\n  on_weakened: {}\n"


def case(name: str) -> dict[str, Any]:
    parts = {"role": "user", "parts": [{"text": "roll"}]}
    answer = {"role": "model", "parts": [{"text": "six"}]}
    return {"eval_id": name, "conversation": [{"user_content": parts, "final_response": answer}]}


class Repo:
    """A repository with main and a branch; the agent is a recording in which case ``b`` fails."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("bot", "evals", "recording"):
            (root / folder).mkdir()
        (root / ".gitignore").write_text(".agent-eval/\n")
        (root / "bot" / "agent.py").write_text("from google.adk.agents import Agent\n")
        self.cases("a", "b")
        self.criteria(0.8)
        with (root / "recording" / "attempts.jsonl").open("w", encoding="utf-8") as file:
            for name, said in (("a", "six"), ("b", "no")):
                turn = case(name)["conversation"][0]
                turn["final_response"] = {"role": "model", "parts": [{"text": said}]}
                line = {"agent": "bot", "eval_set": "evals/s", "case": name, "repeat": 0, "case_digest": "x"}
                file.write(json.dumps({**line, "turns": [turn]}) + "\n")

    def cases(self, *names: str) -> None:
        value = {"eval_set_id": "s", "eval_cases": [case(name) for name in names]}
        (self.root / "evals" / "s.evalset.json").write_text(json.dumps(value))

    def criteria(self, threshold: float) -> None:
        (self.root / "evals" / "test_config.json").write_text(
            json.dumps({"criteria": {"response_match_score": threshold}})
        )

    def rules(self, on_weakened: str) -> None:
        (self.root / "agent-eval.yaml").write_text(CONFIG + RULES.format(on_weakened))

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *who, *words], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self, branch: str) -> None:
        if not (self.root / ".git").exists():
            self.git("init", "-qb", branch)
        elif self.git("branch", "--show-current").strip() != branch:
            self.git("checkout", "-qb", branch)
        self.git("add", "-A")
        self.git("commit", "--allow-empty", "-qm", "x")

    def run(self, *words: str, **environ: str) -> tuple[int, dict[str, Any], str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))}
        done = agent_eval("run", *words, cwd=self.root, env={**clean, **environ})
        results = self.root / ".agent-eval" / "out" / "results.json"
        assert results.exists(), done.stderr
        return done.returncode, json.loads(results.read_text())["decision"], done.stderr


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path)
    made.rules("fail")
    made.commit("main")
    return made


PULL = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}


def test_removing_the_failing_case_is_blocked_by_main_s_rule_even_if_the_change_switches_it_off(repo: Repo):
    code, decision, _ = repo.run()
    assert code == 1
    assert decision["weakenings"] == []
    repo.cases("a")
    repo.rules("warn")
    repo.commit("pr")
    before = repo.git("status", "--porcelain"), repo.git("stash", "list"), (repo.root / ".git" / "index").read_bytes()
    code, decision, said = repo.run(**PULL)
    assert code == 1, said
    reasons = [sentence(one) for one in decision["weakenings"]]
    assert reasons[0] == "case `b` was removed from `evals/s.evalset.json`"
    assert "gate.on_weakened fail → warn (agent-eval.yaml), takes effect with the merge" in reasons
    assert any("the rules are those of the base commit" in note for note in notes(decision))
    comment = (repo.root / ".agent-eval" / "out" / "comment.md").read_text()
    assert comment.index("This change loosens its own checks") < comment.index("| Criterion |")
    assert before == (
        repo.git("status", "--porcelain"),
        repo.git("stash", "list"),
        (repo.root / ".git" / "index").read_bytes(),
    )


def test_on_a_laptop_the_own_file_holds_and_the_weakening_is_reported(repo: Repo):
    repo.cases("a")
    repo.criteria(0.1)
    repo.rules("warn")
    repo.commit("pr")
    code, decision, said = repo.run()
    assert code == 0, said
    assert len(decision["weakenings"]) == 3
    assert "this change loosens its own checks" in said
    assert "threshold lowered 0.80 → 0.10" in " ".join(said.split())


def test_a_narrowed_run_still_sees_the_whole_suite(repo: Repo):
    repo.cases("a")
    repo.commit("pr")
    _, decision, _ = repo.run("--case", "a")
    assert [one["subject"]["case"] for one in decision["weakenings"]] == ["b"]


def test_uncommitted_changes_on_main_are_compared_with_its_last_commit(repo: Repo):
    repo.cases("a")
    code, decision, _ = repo.run()
    assert code == 1
    assert [one["subject"]["case"] for one in decision["weakenings"]] == ["b"]


def test_without_a_configuration_on_the_base_our_defaults_are_the_rules(tmp_path: Path):
    repo = Repo(tmp_path)
    (tmp_path / "bot" / "agent.py").write_text("root_agent = None\n")
    repo.commit("main")
    (tmp_path / "agent-eval.yaml").write_text(
        "agent: bot\nevals: evals\ngate:\n  threshold_on: 'off'\n  fail_on: fail\n  max_drop: 0.5\n"
    )
    repo.commit("pr")
    code, decision, said = repo.run(**PULL, INPUT_RECORDING="recording")
    assert code == 1, said  # case b misses its threshold, as the defaults want it
    assert any("gate.max_drop 0.05 → 0.5" in one and "takes effect with the merge" in one for one in reasons(decision))
    assert any("gate.fail_on inconclusive → fail" in one for one in reasons(decision))


def test_an_eval_file_of_the_base_that_cannot_be_read_is_reported_and_stops_nothing(repo: Repo):
    (repo.root / "evals" / "s.evalset.json").write_text("{")
    repo.commit("main")
    repo.cases("a")
    repo.commit("pr")
    code, decision, _ = repo.run(**PULL)
    assert code == 0
    assert decision["weakenings"] == []
    assert any("what the change does to evals/s.evalset.json is not known" in note for note in notes(decision))


class Kept(Repo):
    """The same with a committed baseline. The agent answers every case, so that its scores are ones."""

    def store(self, **scores: float) -> None:
        """Write the file as `baseline update` made it, then with these scores."""
        path = self.root / ".agent-eval" / "baseline.json"
        if not path.exists():
            clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))}
            done = agent_eval(*UPDATE, cwd=self.root, env=clean)
            assert done.returncode == 0, done.stderr
        value = json.loads(path.read_text())
        for record in value["records"]:
            score = scores.get(record["case"])
            one = record["criteria"]["response_match_score"]
            if score is not None:
                one.update(n=20, passed=20 if score >= 0.8 else 0, scores=[[score, 20]])
        path.write_text(json.dumps(value))

    def answers(self, eval_set: str = "evals/s", **said: str) -> None:
        path = self.root / "recording" / "attempts.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for name, text in said.items():
                turn = case(name)["conversation"][0]
                turn["final_response"] = {"role": "model", "parts": [{"text": text}]}
                for repeat in range(6):
                    line = {"agent": "bot", "eval_set": eval_set, "case": name, "repeat": repeat, "case_digest": "x"}
                    file.write(json.dumps({**line, "turns": [turn]}) + "\n")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Main knows that case ``b`` always passes; the branch ``pr`` has an agent in which it fails."""
    made = Kept(tmp_path)
    (tmp_path / ".gitignore").write_text(".agent-eval/out/\n.agent-eval/cache/\n")
    made.answers(a="six", b="six")
    (tmp_path / "agent-eval.yaml").write_text(f"{CONFIG}repeats: 6\n")
    made.run()
    made.store(a=1.0, b=1.0)
    made.commit("main")
    made.answers(a="six", b="no")
    made.commit("pr")
    return made


def reasons(decision: dict[str, Any]) -> list[str]:
    return [sentence(one) for one in decision["weakenings"]]


def test_a_worse_agent_does_not_pass_by_lowering_the_stored_scores(kept: Kept):
    code, decision, said = kept.run(**PULL)
    assert (code, reasons(decision)) == (1, []), said
    kept.store(b=0.0)
    kept.commit("pr")
    code, decision, said = kept.run(**PULL)
    assert code == 1, said
    assert "`b`" in headline(decision)
    assert reasons(decision) == ["the stored baseline is loosened for 1 score: `b › response_match_score` 1.00 → 0.00"]
    assert any("not with the change's own" in note for note in notes(decision))
    comment = (kept.root / ".agent-eval" / "out" / "comment.md").read_text()
    assert comment.index("the stored baseline is loosened") < comment.index("| Criterion |")


def test_taking_a_pair_out_of_the_baseline_or_the_file_away_does_not_help(kept: Kept):
    path = kept.root / ".agent-eval" / "baseline.json"
    value = json.loads(path.read_text())
    value["records"] = [record for record in value["records"] if record["case"] != "b"]
    path.write_text(json.dumps(value))
    kept.commit("pr")
    code, decision, _ = kept.run(**PULL)
    assert code == 1
    assert reasons(decision) == ["the stored baseline loses 1 score: `b › response_match_score`"]
    path.unlink()
    kept.commit("pr")
    code, decision, _ = kept.run(**PULL)
    assert code == 1
    assert reasons(decision) == [
        "the stored baseline was removed, or cannot be read any more: 2 scores of main are lost"
    ]


def test_keeping_the_baseline_elsewhere_does_not_help(kept: Kept):
    value = json.loads((kept.root / ".agent-eval" / "baseline.json").read_text())
    value["records"] = [record for record in value["records"] if record["case"] != "b"]
    (kept.root / ".agent-eval" / "other.json").write_text(json.dumps(value))
    text = (kept.root / "agent-eval.yaml").read_text()
    (kept.root / "agent-eval.yaml").write_text(f"{text}baseline:\n  path: .agent-eval/other.json\n")
    kept.git("add", "-f", ".agent-eval/other.json")
    kept.commit("pr")
    code, decision, _ = kept.run(**PULL)
    assert code == 1
    assert decision["baseline"]["path"] == ".agent-eval/baseline.json"
    assert "the stored baseline loses 1 score: `b › response_match_score`" in reasons(decision)


def test_under_on_weakened_fail_a_lowered_baseline_blocks_a_good_agent_too(kept: Kept):
    kept.git("checkout", "-q", "main")
    text = (kept.root / "agent-eval.yaml").read_text()
    (kept.root / "agent-eval.yaml").write_text(f"{text}gate:\n  on_weakened: fail\n")
    kept.commit("main")
    kept.git("checkout", "-qb", "pr2")
    assert kept.run(**PULL)[0] == 0
    kept.store(b=0.0)
    kept.commit("pr2")
    code, decision, _ = kept.run(**PULL)
    assert code == 1
    assert "on_weakened: fail blocks that: the stored baseline is loosened" in headline(decision)


def test_a_first_baseline_counts_from_the_merge_on(tmp_path: Path):
    repo = Kept(tmp_path)
    (tmp_path / ".gitignore").write_text(".agent-eval/out/\n.agent-eval/cache/\n")
    repo.answers(a="six", b="six")
    (tmp_path / "agent-eval.yaml").write_text(f"{CONFIG}repeats: 6\n")
    repo.run()
    repo.commit("main")
    repo.store(a=1.0, b=1.0)
    repo.commit("pr")
    code, decision, said = repo.run(**PULL)
    assert (code, reasons(decision)) == (0, []), said
    assert decision["baseline"] is None
    assert any("counts from the merge on" in note for note in notes(decision))


ACCEPT = "- case: b\n  reason: it says no now\n"


def test_an_accepted_change_passes_unless_the_policy_forbids_it(kept: Kept):
    kept.git("checkout", "-q", "main")
    (kept.root / "evals" / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.0}}))
    kept.commit("main")
    kept.answers(a="six", b="no")
    kept.commit("accepted")
    assert kept.run(**PULL)[0] == 1
    (kept.root / ".agent-eval" / "accept.yaml").write_text(ACCEPT)
    kept.git("add", "-f", ".agent-eval/accept.yaml")
    kept.commit("accepted")
    code, decision, said = kept.run(**PULL)
    assert code == 0, said
    assert "accept.yaml accepts a change of `b`: it says no now" in reasons(decision)
    assert any("(it says no now)" in note and "accepted" in note for note in notes(decision)), notes(decision)
    code, decision, _ = kept.run("--accept", "ignore", **PULL)
    assert code == 1
    assert any("gate.accept: ignore, so main's scores of it still count" in one for one in reasons(decision))


def test_an_accepted_change_is_spent_once_the_baseline_was_made_with_it(kept: Kept):
    path = kept.root / ".agent-eval" / "accept.yaml"
    path.write_text(ACCEPT)
    kept.run()
    assert agent_eval(*UPDATE, cwd=kept.root).returncode == 0
    stored = json.loads((kept.root / ".agent-eval" / "baseline.json").read_text())
    assert [one["case"] for one in stored["accepted"]] == ["b"]
    _, decision, _ = kept.run()
    assert not any("its change was accepted" in note for note in notes(decision))
    assert {pair["case"]: pair["kind"] for pair in decision["pairs"]} == {"a": "same", "b": "still_failing"}


NAMED = "cases/data.json"


@pytest.mark.parametrize("selector", [NAMED, f"{NAMED}:a,b", "cases/d*.json"])
def test_eval_files_that_only_the_command_names_are_main_s_as_well(kept: Kept, selector: str):
    kept.git("checkout", "-q", "main")
    kept.git("mv", "evals", "cases")
    kept.git("mv", "cases/s.evalset.json", NAMED)
    (kept.root / "agent-eval.yaml").write_text(CONFIG.replace("  evals: evals\n", "") + "repeats: 6\n")
    kept.commit("main")
    kept.git("checkout", "-qb", "pr2")
    kept.answers("cases/data", a="six", b="no")
    (kept.root / "cases" / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.0}}))
    kept.commit("pr2")
    code, decision, said = kept.run(selector, **PULL)
    assert code == 1, said
    assert "`b`" in headline(decision)
    assert [one["code"] for one in decision["weakenings"]] == ["criterion_loosened"]
    value = json.loads((kept.root / NAMED).read_text())
    value["eval_cases"] = value["eval_cases"][:1]
    (kept.root / NAMED).write_text(json.dumps(value))
    kept.commit("pr2")
    _, decision, _ = kept.run(selector.replace(",b", ""), **PULL)
    assert [one["code"] for one in decision["weakenings"]] == ["case_removed", "criterion_loosened"]


def test_an_eval_set_named_by_its_id_is_found_on_main(kept: Kept):
    kept.git("checkout", "-q", "main")
    kept.git("mv", "evals/s.evalset.json", "bot/s.evalset.json")
    kept.git("mv", "evals/test_config.json", "bot/test_config.json")
    (kept.root / "agent-eval.yaml").write_text(CONFIG.replace("evals: evals", "evals: other") + "repeats: 6\n")
    (kept.root / "other").mkdir()
    other = json.dumps({"eval_set_id": "t", "eval_cases": [case("a")]}).replace("roll", "throw")
    (kept.root / "other" / "t.evalset.json").write_text(other)
    kept.commit("main")
    kept.git("checkout", "-qb", "pr2")
    kept.answers("bot/s", a="six", b="no")
    kept.commit("pr2")
    code, decision, said = kept.run("s", **PULL)
    assert code == 1, said
    assert decision["weakenings"] == []


LAX = json.dumps({"criteria": {"response_match_score": 0.0}})


def test_eval_files_that_a_step_of_the_job_writes_are_main_s_as_well(kept: Kept):
    kept.git("checkout", "-q", "main")
    with (kept.root / ".gitignore").open("a", encoding="utf-8") as file:
        file.write("evals/*.evalset.json\n")
    kept.git("rm", "-q", "--cached", "evals/s.evalset.json")
    kept.commit("main")
    kept.git("checkout", "-qb", "pr2")
    kept.answers(a="six", b="no")
    (kept.root / "evals" / "test_config.json").write_text(LAX)
    kept.commit("pr2")
    code, decision, said = kept.run(**PULL)
    assert code == 1, said
    assert "`b`" in headline(decision)
    assert [one["code"] for one in decision["weakenings"]] == ["criterion_loosened"]


def test_a_case_that_git_had_is_judged_by_main_s_criteria_in_a_file_that_git_lacks_too(kept: Kept):
    kept.git("mv", "evals/s.evalset.json", "evals/t.evalset.json")
    (kept.root / "written").mkdir()
    kept.git("mv", "evals/t.evalset.json", "written/t.evalset.json")
    with (kept.root / ".gitignore").open("a", encoding="utf-8") as file:
        file.write("written/\n")
    kept.git("rm", "-q", "--cached", "written/t.evalset.json")
    (kept.root / "written" / "test_config.json").write_text(LAX)
    (kept.root / "agent-eval.yaml").write_text(CONFIG.replace("evals: evals", "evals: written") + "repeats: 6\n")
    kept.answers("written/t", a="six", b="no")
    kept.commit("pr")
    code, decision, said = kept.run(**PULL)
    assert code == 1, said
    assert "`b`" in headline(decision)
    assert "criterion_loosened" in [one["code"] for one in decision["weakenings"]]


class WithSubmodule(Kept):
    """The same with the eval files in a submodule. The agent of both branches answers case ``b`` wrongly."""

    def __init__(self, kept: Kept) -> None:
        self.root = kept.root

    @property
    def source(self) -> Path:
        return self.root.parent / f"{self.root.name}-evals"

    def in_source(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", *who, "-C", str(self.source), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def move_evals(self) -> None:
        self.git("rm", "-rq", "--cached", "evals")
        (self.root / "evals").rename(self.source)
        self.in_source("init", "-q", "-b", "main")
        self.in_source("config", "uploadpack.allowAnySHA1InWant", "true")
        self.in_source("add", "-A")
        self.in_source("commit", "-qm", "x")
        self.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{self.source}", "evals")

    def update_evals(self) -> None:
        """Take the newest eval files over, as a job's checkout does."""
        self.in_source("add", "-A")
        self.in_source("commit", "-qm", "x")
        commit = self.in_source("rev-parse", "HEAD")
        for words in (("fetch", "-q", "--depth=1", "origin", commit), ("checkout", "-q", commit)):
            subprocess.run(["git", "-C", str(self.root / "evals"), *words], check=True, capture_output=True)


@pytest.fixture
def with_submodule(kept: Kept) -> WithSubmodule:
    made = WithSubmodule(kept)
    made.git("checkout", "-q", "main")
    made.git("checkout", "-q", "pr", "--", "recording")
    made.move_evals()
    made.commit("main")
    made.git("checkout", "-qb", "pr2")
    return made


def test_eval_files_in_a_submodule_are_main_s_as_well(with_submodule: WithSubmodule):
    with_submodule.commit("pr2")
    code, decision, said = with_submodule.run(**PULL)
    assert code == 1, said
    assert "`b`" in headline(decision)
    assert decision["weakenings"] == []


def test_what_a_change_does_in_a_submodule_is_seen_where_both_commits_are_here(with_submodule: WithSubmodule):
    source = with_submodule.source
    value = json.loads((source / "s.evalset.json").read_text())
    value["eval_cases"] = value["eval_cases"][1:]
    (source / "s.evalset.json").write_text(json.dumps(value))
    (source / "test_config.json").write_text(LAX)
    with_submodule.update_evals()
    with_submodule.commit("pr2")
    code, decision, said = with_submodule.run(**PULL)
    assert code == 1, said
    assert [one["code"] for one in decision["weakenings"]] == ["case_removed", "criterion_loosened"]


def test_a_submodule_whose_base_is_not_here_is_named_and_its_cases_still_count(with_submodule: WithSubmodule):
    (with_submodule.source / "README").write_text("x")
    with_submodule.update_evals()
    with_submodule.commit("pr2")
    shutil.rmtree(with_submodule.root / "evals")
    shutil.rmtree(with_submodule.root / ".git" / "modules" / "evals")
    update = ("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init", "--depth=1", "evals")
    with_submodule.git(*update)
    code, decision, said = with_submodule.run(**PULL)
    assert code == 1, said
    assert "`b`" in headline(decision)
    assert any("what the change does in the submodule evals is not known" in note for note in notes(decision))


def in_modes(kept: Kept, mode: str) -> None:
    kept.git("checkout", "-q", "main")
    kept.git("mv", "evals/s.evalset.json", "evals/old.evalset.json")
    kept.answers("evals/old", a="six", b="six")
    config = f"{CONFIG}repeats: 6\ngate: {{threshold_on: case, sets: {{evals/{mode}: advisory}}}}\n"
    (kept.root / "agent-eval.yaml").write_text(config)
    kept.commit("main")
    kept.git("checkout", "-qb", "pr2")
    kept.git("mv", "evals/old.evalset.json", "evals/new.evalset.json")
    kept.answers("evals/new", a="six", b="no")
    (kept.root / "agent-eval.yaml").write_text(config.replace(f"evals/{mode}", "evals/new"))
    kept.commit("pr2")


def test_an_eval_set_keeps_its_mode_where_its_file_is_renamed(kept: Kept):
    in_modes(kept, "old")
    code, decision, said = kept.run(**PULL)
    assert (code, decision["weakenings"]) == (0, []), said


def test_an_eval_set_is_not_made_advisory_by_the_name_of_one_that_is(kept: Kept):
    in_modes(kept, "new")
    code, decision, said = kept.run(**PULL)
    assert code == 1, said
    assert [one["data"]["eval_set"] for one in decision["weakenings"]] == ["evals/new"]


def test_an_eval_file_that_is_broken_beside_those_of_the_run_hides_nothing(repo: Repo):
    repo.git("checkout", "-q", "main")
    other = json.dumps({"eval_set_id": "t", "eval_cases": [case("c")]}).replace("roll", "throw")
    (repo.root / "evals" / "t.evalset.json").write_text(other)
    repo.commit("main")
    repo.cases("a")
    (repo.root / "evals" / "t.evalset.json").write_text("{")
    repo.commit("pr")
    code, decision, said = repo.run("evals/s.evalset.json", **PULL)
    assert code == 1, said
    assert [one["subject"]["case"] for one in decision["weakenings"]] == ["b", "c"]


def test_a_suite_that_cannot_be_read_beside_the_run_is_no_pass_where_weakening_fails(repo: Repo):
    (repo.root / "evals" / "new").mkdir()
    (repo.root / "evals" / "new" / "t.evalset.json").write_text(
        json.dumps({"eval_set_id": "t", "eval_cases": [case("c")]})
    )
    (repo.root / "evals" / "new" / "test_config.json").write_text("{")
    repo.cases("a")
    repo.commit("pr")
    code, decision, said = repo.run("evals/s.evalset.json", **PULL)
    assert code == 1, said
    assert [one["code"] for one in decision["weakenings"]] == ["text"]
