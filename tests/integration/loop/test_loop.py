"""What a run makes beyond its first pass, by ADK's own Runner, on a repository with a base and a head."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.messages import headline, notes, sentence

SUITE = 13
ONE = "players_own_die"  # rolls a d12, as one other case does
MINE = '    if sides == 12 and tool_context.state.get("own_die"):\n'
BREAK = MINE + '        print("broken by the change")\n        return {"error": "no such die"}\n'
SETTLED = 60
MAIN = "refs/heads/main"
PULL = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/7/merge"}


def pairs(ended: Any, case: str) -> list[dict[str, Any]]:
    return [pair for pair in ended.results["decision"]["pairs"] if pair["case"] == case]


def test_nothing_changed_nothing_is_run_again(dice: Any) -> None:
    dice.branch()
    (dice.folder / "README.md").write_text("another word\n")
    dice.commit("a harmless change")
    ended = dice.run()
    assert ended.code == 0, ended.said
    assert ended.counts() == (SUITE, 0, 0)
    assert "re-running" not in ended.said
    assert dice.trees() == []


@pytest.fixture
def broken(dice: Any) -> Any:
    dice.branch()
    dice.change(BREAK)
    dice.commit("break one case")
    return dice


def test_one_broken_case_blocks_after_three_more_runs_of_it_and_its_control(broken: Any) -> None:
    before = broken.fingerprint()
    ended = broken.run()
    assert broken.fingerprint() == before
    assert ended.code == 1, ended.said
    assert ended.extra() == {ONE: 3}
    controlled = {case["case"] for one in ended.results["sets"] for case in one["cases"] if case.get("control")}
    assert controlled == {ONE}
    made = [(one.get("arm", "head"), one.get("purpose", "first")) for one in ended.case(ONE)["attempts"]]
    assert made == [("head", "first"), ("head", "rerun"), ("head", "control"), ("head", "control")]
    order = [json.loads(line) for line in (broken.out / "attempts.jsonl").read_text().splitlines()]
    assert {one.get("arm", "head") for one in order[SUITE + 1 :]} == {"head", "base"}
    assert "3 runs there in turn with 2 here" in ended.said
    scores = [score["score"] for one in ended.case(ONE)["control"] for score in one["scores"]]
    assert set(scores) == {1.0}, "the base's agent is not broken"
    assert ended.results["base"]["commit"] == broken.git("rev-parse", "main")
    assert f"of {ONE} fell from 1.00 to 0." in ended.said or f"of {ONE} fell from 5/5 to 0/1" in ended.said, ended.said
    assert "broken by the change" in (broken.out / "logs" / "dice_agent.log").read_text()
    base_log = broken.out / "logs" / "dice_agent.base.log"
    assert not base_log.exists() or "broken by the change" not in base_log.read_text()
    assert broken.trees() == []
    assert broken.git("worktree", "list").count("\n") == 0


def test_what_is_as_broken_on_main_does_not_block(dice: Any) -> None:
    dice.change(BREAK)
    dice.commit("main breaks")
    dice.branch()
    (dice.folder / "README.md").write_text("another word\n")
    dice.commit("a harmless change")
    ended = dice.run()
    assert ended.case(ONE)["control"], ended.said
    assert "unavailable" not in ended.results["base"] or not ended.results["base"]["unavailable"]
    assert ended.code == 0, ended.said
    assert "main" in str(pairs(ended, ONE))


def test_a_case_that_recovers_is_shown_as_flaky_and_passes(dice: Any) -> None:
    dice.branch()
    fall = '        MARKER.touch()\n        return {"error": "the die fell off the table"}\n'
    dice.change(MINE.replace(":\n", " and not MARKER.exists():\n") + fall)
    dice.commit("flaky")
    ended = dice.run()
    assert ended.extra() == {ONE: 3}, ended.said
    assert ended.counts()[2] == 0, "what recovered needs no control"
    assert ended.code == 0, ended.said
    assert "flaky" in {pair["kind"] for pair in pairs(ended, ONE)}


@pytest.mark.exhaustive
def test_an_outage_that_ends_before_the_control_is_not_blamed_on_the_change(dice: Any) -> None:
    """Bad in the first pass and when run again, well in turn with the base's agent: what drifts meets both."""
    dice.branch()
    ill = '        with MARKER.open("a") as times:\n            times.write("x")\n'
    ill += '        if MARKER.stat().st_size <= 2:\n            return {"error": "the service is ill"}\n'
    dice.change(MINE + ill)
    dice.commit("a change that meets an ill service")
    ended = dice.run()
    assert ended.code == 0, ended.said
    made = [one.get("purpose", "first") for one in ended.case(ONE)["attempts"]]
    assert made == ["first", "rerun", "control", "control", "rerun", "rerun"]
    assert len(ended.case(ONE)["control"]) == 3
    assert "flaky" in {pair["kind"] for pair in pairs(ended, ONE)}


@pytest.mark.exhaustive
def test_a_limit_before_the_control_is_no_fail_and_is_reported(broken: Any) -> None:
    ended = broken.run("--max-extra-runs", "5")
    assert ended.counts() == (SUITE, 0, 0), "a re-run without the control it needs would decide nothing"
    assert ended.code == 3, ended.said
    assert "raise `max_extra_runs`" in ended.said, ended.said
    assert "the limit of 5 extra runs" in ended.results["cut_short"]
    assert ended.results["base"]["commit"] == broken.git("rev-parse", "main")
    assert broken.trees() == []
    assert broken.run("--max-extra-runs", "6").code == 1, "as many as it takes"


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("where", ["re-running", "control"])
def test_an_interrupt_writes_everything_and_leaves_nothing_behind(dice: Any, where: str) -> None:
    asleep = MINE.replace(":\n", " and MARKER.exists():\n") + "        await asyncio.sleep(600)\n"
    wrong = MINE + '        MARKER.touch()\n        return {"error": "no such die"}\n'
    if where == "control":  # the base's agent hangs once this change's was asked
        dice.change(asleep)
        dice.commit("main sleeps when the marker is there")
    dice.branch()
    if where == "control":
        dice.git("checkout", "-q", "main~1", "--", "dice_agent")
    dice.change(wrong if where == "control" else asleep + wrong)
    dice.commit("wrong")
    before = dice.fingerprint()
    process = dice.start()
    said: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if line.startswith(f"{where}: ") and "starting" not in line:
            break
    process.send_signal(signal.SIGINT)
    said.append(process.communicate(timeout=SETTLED)[1])
    assert process.returncode == 130, "".join(said)
    assert json.loads((dice.out / "results.json").read_text())["status"] == "interrupted"
    assert (dice.out / "attempts.jsonl").read_text().count("\n") >= SUITE
    assert (dice.out / "comment.md").exists()
    assert dice.trees() == []
    assert dice.fingerprint() == before


@pytest.mark.exhaustive
def test_a_base_whose_environment_cannot_be_built_leaves_the_verdict_to_history(dice: Any) -> None:
    for name in ("requirements.txt", "requirements.in"):
        (dice.folder / name).unlink()
    (dice.folder / "requirements.txt").write_text("no-such-package-of-this-test==1.0\n")
    dice.commit("main asks for what there is not")
    dice.branch()
    (dice.folder / "requirements.txt").write_text("google-adk\n")
    dice.change(BREAK)
    dice.commit("break one case")
    dice.environ["UV_OFFLINE"] = "1"
    ended = dice.run()
    assert ended.code == 1, ended.said
    assert ended.counts() == (SUITE + 3, 3, 0)
    assert "no control: the agent of" in ended.said
    assert "could not be run: uv could not build the agent's environment" in ended.results["base"]["unavailable"]
    assert dice.trees() == []


def clone(dice: Any, target: Path, branch: str = "change") -> None:
    """What is checked out when a branch is merged onto main, at depth 1."""
    dice.git("checkout", "-q", "main")
    dice.git("merge", "-q", "--no-ff", "-m", "merge", branch)
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{dice.folder}", str(target)], check=True)


def test_a_shallow_clone_fetches_the_base_into_a_place_of_its_own(broken: Any, tmp_path: Path) -> None:
    base = broken.git("rev-parse", "main")
    clone(broken, tmp_path / "shallow")
    shallow = type(broken)(tmp_path / "shallow", broken.python, PULL)
    before = shallow.fingerprint()
    ended = shallow.run()
    assert ended.code == 1, ended.said
    assert ended.results["base"]["commit"] == base
    assert ended.case(ONE)["control"], ended.said
    assert shallow.fingerprint() == before


def test_a_shallow_clone_whose_remote_is_gone_decides_nothing_by_the_changes_own_rules(
    broken: Any, tmp_path: Path
) -> None:
    clone(broken, tmp_path / "shallow")
    broken.folder.rename(tmp_path / "gone")
    ended = type(broken)(tmp_path / "shallow", broken.python, PULL).run()
    assert ended.code == 3, ended.said
    assert "is not in this clone (actions/checkout: fetch-depth: 2)" in headline(ended.results["decision"])
    assert ended.results["totals"]["attempts"] == 0


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("store", ["auto", "rerun"])
def test_a_merge_queue_is_held_against_the_groups_base(broken: Any, tmp_path: Path, store: str) -> None:
    """Two pull requests in one group: what the first parent already has is the first one's, not main's."""
    base = broken.git("rev-parse", "main")
    broken.git("checkout", "-q", "main")
    broken.git("merge", "-q", "--no-ff", "-m", "the first of the group", "change")
    broken.git("checkout", "-q", "-b", "second", base)
    (broken.folder / "README.md").write_text("another word\n")
    broken.commit("the second of the group")
    clone(broken, tmp_path / "queue", "second")
    event = {"merge_group": {"base_sha": base, "head_sha": broken.git("rev-parse", "main"), "base_ref": MAIN}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    queue = {"GITHUB_EVENT_NAME": "merge_group", "GITHUB_REF": "refs/heads/gh-readonly-queue/main/pr-8"}
    queue["GITHUB_EVENT_PATH"] = str(tmp_path / "event.json")
    work = type(broken)(tmp_path / "queue", broken.python, {**PULL, **queue})
    ended = work.run("--baseline-store", store)
    assert ended.code == 1, ended.said
    assert ended.results["base"]["commit"] == base
    assert {score["score"] for one in ended.case(ONE)["control"] for score in one["scores"]} == {1.0}
    assert [f["subject"]["case"] for f in ended.results["decision"]["findings"] if f["severity"] == "blocks"] == [ONE]


@pytest.mark.exhaustive
def test_the_whole_base_can_be_run_in_the_place_of_a_stored_history(broken: Any) -> None:
    (broken.folder / ".agent-eval" / "baseline.json").unlink()
    ended = broken.run("--baseline-store", "rerun")
    assert ended.code == 1, ended.said
    assert ended.extra() == {ONE: 3}
    assert ended.counts() == (SUITE + 3, 3, 5 * SUITE)
    assert ended.results["decision"]["baseline"]["commit"] == broken.git("rev-parse", "main")
    assert [f["subject"]["case"] for f in ended.results["decision"]["findings"] if f["severity"] == "blocks"] == [ONE]
    assert broken.trees() == []


def test_a_base_that_does_not_start_is_no_baseline_and_its_cases_are_not_new(dice: Any) -> None:
    code = dice.folder / "dice_agent" / "agent.py"
    good = code.read_text()
    code.write_text("import no_such_module\n" + good)
    dice.commit("broken on main")
    dice.branch()
    code.write_text(good)
    dice.commit("change")
    ended = dice.run("--baseline-store", "rerun")
    assert ended.code == 3, ended.said
    decision = ended.results["decision"]
    (finding,) = [one for one in decision["findings"] if one["severity"] == "inconclusive"]
    assert "No module named 'no_such_module'" in sentence(finding)
    assert not any("new" in note for note in notes(decision))
