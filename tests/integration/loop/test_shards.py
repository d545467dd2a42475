"""A suite measured by several jobs: the recipes of docs/shards.md as they are written, and the verdict of one job."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.command import agent_eval
from support.pages import ROOT

PAGE = (ROOT / "docs" / "shards.md").read_text()
RECIPES = dict(re.findall(r"```(?:yaml|sh)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
BIN = ROOT / ".venv" / "bin"
ONE = "players_own_die"
BREAK = '    if sides == 12 and tool_context.state.get("own_die"):\n        return {"error": "no such die"}\n'
WHOLE = 13


@pytest.fixture
def broken(dice: Any) -> Any:
    dice.branch()
    dice.change(BREAK)
    dice.commit("break one case")
    dice.environ |= {"INPUT_PYTHON": str(dice.python), "INPUT_WORKERS": "1"}
    return dice


def command(dice: Any, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return agent_eval(*words, cwd=dice.folder, env={**dice._environ(), **variables})


def measure(dice: Any, *shards: str) -> list[Path]:
    """Measure these shards of the suite, each into a folder of its own."""
    folders = []
    for shard in shards:
        folders.append(dice.folder / ".agent-eval" / "shards" / shard.replace("/", "-"))
        done = command(dice, "run", "--shard", shard, "--out", str(folders[-1]))
        assert done.returncode == 0, done.stderr
    return folders


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def evidence(result: dict[str, Any]) -> dict[str, Any]:
    """What was decided and why, without what is another number in every run: times."""
    decision = result["decision"]
    counts = {name: result["totals"][name] for name in ("cases", "attempts", "extra", "control", "errors")}
    return {
        "outcome": decision["outcome"],
        "reasons": decision["reasons"],
        "findings": decision["findings"],
        "pairs": decision["pairs"],
        "criteria": decision["criteria"],
        "totals": counts,
        "tokens": result["totals"]["usage"],
        "base": result["base"]["commit"],
    }


def test_two_shards_merge_into_the_verdict_of_one_job(broken: Any) -> None:
    folders = measure(broken, "1/2", "2/2")
    for folder in folders:
        assert {path.name for path in folder.iterdir()} - {"logs", "blobs"} == {"results.json", "attempts.jsonl"}
        assert results(folder)["decision"] is None
        assert len(results(folder)["shard"]["cases"]) == WHOLE
    merged = command(broken, "merge", *map(str, folders))
    assert merged.returncode == 1, merged.stderr
    joined = results(broken.out)
    assert joined["merge"] == {"shards": 2, "problems": []}
    lines = (broken.out / "attempts.jsonl").read_text().splitlines()
    assert len(lines) == WHOLE + 6, "the attempts of the shards, and those that the merge made"
    assert {path.name for path in broken.out.iterdir()} >= {"junit.xml", "comment.md", "report.html"}
    whole = broken.run()
    assert whole.code == 1
    assert evidence(joined) == evidence(whole.results)

    refused = command(broken, "baseline", "update", "--shard", "1/2")
    assert refused.returncode == 2, refused.stderr
    text = (folders[0] / "results.json").read_text()
    (folders[0] / "results.json").write_text(text[: len(text) // 2])
    cut = command(broken, "merge", *map(str, folders))
    assert cut.returncode == 3, cut.stderr
    named = {problem["kind"]: problem for problem in results(broken.out)["merge"]["problems"]}
    assert named.keys() == {"unreadable", "missing"}
    assert named["unreadable"]["source"].endswith("results.json")
    assert named["missing"]["number"] == 1
    assert named["missing"]["cases"] == WHOLE - len(
        [case for case in results(folders[1])["sets"] for case in case["cases"]]
    )


@pytest.mark.exhaustive
def test_the_shell_recipe_as_it_is_written(broken: Any) -> None:
    script = broken.folder.parent / "shards.sh"
    script.write_text(RECIPES["shards.sh"])
    environ = {**broken._environ(), "PATH": f"{BIN}:{broken._environ()['PATH']}"}
    done = subprocess.run(["sh", script], cwd=broken.folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert results(broken.out)["merge"]["shards"] == 4


@pytest.mark.exhaustive
def test_the_gitlab_recipe_as_it_is_written(broken: Any) -> None:
    jobs = yaml.safe_load(RECIPES[".gitlab-ci.yml"])
    count = jobs["measure"]["parallel"]
    for number in range(1, count + 1):
        for line in jobs["measure"]["script"][1:]:  # the first installs the tool
            done = shell(broken, line, CI_NODE_INDEX=str(number), CI_NODE_TOTAL=str(count))
            assert done.returncode == 0, done.stderr
    done = shell(broken, jobs["agent-eval"]["script"][-1])
    assert done.returncode == 1, done.stderr
    assert results(broken.out)["merge"]["shards"] == count


def shell(dice: Any, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**dice._environ(), **variables}
    environ["PATH"] = f"{BIN}:{environ['PATH']}"
    return subprocess.run(
        ["bash", "-ec", line], cwd=dice.folder, env=environ, capture_output=True, text=True, check=False
    )


class Workflow:
    """Runs the jobs of the GitHub recipe one after another: its steps, with artifacts in a local folder."""

    def __init__(self, dice: Any) -> None:
        self.dice, self.jobs = dice, yaml.safe_load(RECIPES[".github/workflows/evals.yml"])["jobs"]
        self.store = dice.folder.parent / "artifacts"
        self.outputs: dict[str, str] = {}

    def run(self, name: str, matrix: dict[str, Any] | None = None, index: int = 0) -> int:
        """Run a job in a clean checkout; return the code of its last command of ours."""
        shutil.rmtree(self.dice.folder / ".agent-eval" / "out", ignore_errors=True)
        shutil.rmtree(self.dice.folder / ".agent-eval" / "shards", ignore_errors=True)
        code = 0
        for step in self.jobs[name]["steps"]:
            uses = step.get("uses", "").partition("@")[0]
            given = {key: self.filled(str(value), matrix or {}, index) for key, value in step.get("with", {}).items()}
            if "run" in step and "pipx" not in step["run"]:
                output = self.dice.folder.parent / "output"
                output.write_text("")
                done = shell(self.dice, step["run"], GITHUB_OUTPUT=str(output))
                assert done.returncode == 0, done.stderr
                self.outputs[name] = output.read_text().strip().removeprefix("jobs=")
            elif uses == "actions/upload-artifact" and (self.dice.folder / given["path"]).exists():
                source, place = self.dice.folder / given["path"], self.store / given["name"]
                place.parent.mkdir(exist_ok=True)
                copy = shutil.copytree if source.is_dir() else self._copy_file
                copy(source, place)
            elif uses == "actions/download-artifact":
                for artifact in sorted(self.store.glob(given.get("pattern", given.get("name", "")))):
                    place = self.dice.folder / given["path"]
                    shutil.copytree(
                        artifact, place / artifact.name if "pattern" in given else place, dirs_exist_ok=True
                    )
            elif uses == "org/agent-eval-action":
                inputs = {f"INPUT_{key.upper()}": value for key, value in given.items() if "key" not in key}
                code = command(self.dice, "run", **inputs).returncode
        return code

    @staticmethod
    def _copy_file(source: Path, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)

    @staticmethod
    def filled(text: str, matrix: dict[str, Any], index: int) -> str:
        known = {"strategy.job-index": index, "github.run_attempt": 1}
        known |= {f"matrix.{key}": value for key, value in matrix.items()}
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: str(known.get(found[1], "")), text)

    def run_matrix(self, name: str, jobs: str) -> list[int]:
        return [self.run(name, matrix, index) for index, matrix in enumerate(json.loads(jobs)["include"])]


@pytest.mark.exhaustive
def test_the_github_recipe_as_it_is_written(broken: Any) -> None:
    baseline = broken.folder / ".agent-eval" / "baseline.json"
    baseline.write_text(re.sub(r'("digest": "[^"]+"),(\n +"criteria")', r'\1, "seconds": 50,\2', baseline.read_text()))
    config = broken.folder / "agent-eval.yaml"
    config.write_text(config.read_text() + "\nconcurrency: 1\n")
    broken.commit("durations")
    workflow = Workflow(broken)
    workflow.run("plan")
    jobs = json.loads(workflow.outputs["plan"])["include"]
    assert [job["seconds"] for job in jobs] == [250, 200, 200]
    assert workflow.run_matrix("measure", workflow.outputs["plan"]) == [0, 0, 0]
    workflow.run("again")
    assert json.loads(workflow.outputs["again"]) == {"include": []}, "one case again is the merge's own"
    assert workflow.run("agent-eval") == 1
    merged = results(broken.out)
    assert merged["merge"] == {"shards": 3, "problems": []}
    assert merged["totals"]["attempts"] == WHOLE + 3

    (lost,) = workflow.store.glob("shard-1-*")
    shutil.rmtree(lost)
    assert workflow.run("agent-eval") == 3
    assert [problem["number"] for problem in results(broken.out)["merge"]["problems"]] == [2]


@pytest.mark.exhaustive
def test_the_second_matrix_of_the_github_recipe_as_it_is_written(dice: Any) -> None:
    dice.branch()
    dice.change('    return {"error": "no dice"}\n')
    dice.commit("break everything")
    dice.environ |= {"INPUT_PYTHON": str(dice.python), "INPUT_WORKERS": "1", "INPUT_CONCURRENCY": "1"}
    workflow = Workflow(dice)
    (wave,) = (step for step in workflow.jobs["again"]["steps"] if step.get("id") == "again")
    wave["run"] = wave["run"].replace("--target 5m", "--target 2s")
    workflow.run("plan")
    measured = workflow.run_matrix("measure", workflow.outputs["plan"])
    workflow.run("again")
    again = workflow.run_matrix("measure-again", workflow.outputs["again"])
    assert len(again) > 1
    assert {*measured, *again} == {0}
    assert workflow.run("agent-eval") == 1
    merged = results(dice.out)
    assert merged["merge"] == {"shards": len(measured) + len(again), "problems": []}
    assert evidence(merged) == evidence(dice.run().results)


@pytest.mark.exhaustive
def test_a_wave_of_jobs_makes_what_the_merge_would_have_made(dice: Any) -> None:
    dice.branch()
    dice.change('    return {"error": "no dice"}\n')
    dice.commit("break everything")
    dice.environ |= {"INPUT_PYTHON": str(dice.python), "INPUT_WORKERS": "1"}
    folders = measure(dice, "1/2", "2/2")
    wave = dice.folder / ".agent-eval" / "wave.json"
    asked = command(dice, "next-wave", *map(str, folders), "--target", "2s", "--concurrency", "1")
    jobs = json.loads(asked.stdout)["include"]
    assert len(jobs) > 1, asked.stderr
    attempts = json.loads(wave.read_text())["cases"]
    assert sum(job["attempts"] for job in jobs) == sum(case["runs"] + case["interleaved"] for case in attempts)
    for number, job in enumerate(jobs[:-1]):  # the last one is lost, and made by the merge
        folders.append(dice.folder / ".agent-eval" / "shards" / f"again-{number}")
        done = command(dice, "run", "--shard", job["shard"], "--wave", str(wave), "--out", str(folders[-1]))
        assert done.returncode == 0, done.stderr
        block = results(folders[-1])
        assert block["shard"]["wave"] == 2
        assert block["totals"]["attempts"] + block["totals"]["control"] == job["attempts"]
    merged = command(dice, "merge", *map(str, folders))
    assert merged.returncode == 1, merged.stderr
    assert evidence(results(dice.out)) == evidence(dice.run().results)
