"""Packages that extend the command: the example of CONTRIBUTING.md, installed and used; and packages that cannot be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import agent_eval

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
BLOCK = re.compile(r"^```\w+\n# examples/plugin/(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = dict(BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()))


def environ(*folders: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, folders))
    return {"PATH": os.environ["PATH"], "HOME": "/nowhere", "PYTHONPATH": path}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package as the page shows it, installed into a folder of its own."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "agent_eval_extras").mkdir()
    (source / "agent_eval_extras" / "__init__.py").touch()
    for name, text in PAGE.items():
        (source / name).write_text(text)
    uv = Path(sys.executable).with_name("uv")
    flags = ["--no-deps", "--no-build-isolation", "--offline", "--no-cache", "--python", sys.executable]
    subprocess.run([uv, "pip", "install", "-q", *flags, "--target", target, source], check=True, capture_output=True)
    return target


@pytest.fixture
def project(tmp_path):
    bot = tmp_path / "bot"
    bot.mkdir()
    (bot / "answers.json").write_text(json.dumps({"How much is it?": "12 euros", "And shipping?": "It depends."}))
    (tmp_path / "agent-eval.yaml").write_text("agents: [{path: bot, driver: canned}]\n")
    questions = [{"ask": "How much is it?", "expect": "12 euros"}, {"ask": "And shipping?", "expect": "4 euros"}]
    (bot / "prices.evalset.json").write_text(json.dumps({"questions": questions}))
    (bot / "test_config.json").write_text('{"criteria": {"cites_order": {"threshold": 1, "pattern": "[0-9]+"}}}')
    return tmp_path


def write_set(project: Path) -> None:
    """Cases in ADK's format, in the place of the package's own."""
    turn = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "hi"}]}}
    cases = {"eval_set_id": "a", "eval_cases": [{"eval_id": "c", "conversation": [turn]}]}
    (project / "bot" / "prices.evalset.json").write_text(json.dumps(cases))


def test_the_page_shows_the_whole_example():
    files = {path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob("*.*") if "__" not in path.as_posix()}
    assert set(PAGE) == files - {"README.md"}
    for name, text in PAGE.items():
        assert text == (EXAMPLE / name).read_text(), name


def test_its_criterion_driver_format_and_report_are_used(installed, project, tmp_path):
    """Another package that cannot be imported is no trouble as long as nobody uses it."""
    other = package(tmp_path / "other", "other", "agent_eval.criteria", "another = other_code:Match", "1 / 0")
    done = agent_eval("run", cwd=project, env=environ(installed, other))
    assert done.returncode == 1, done.stdout + done.stderr
    results = project / ".agent-eval" / "out" / "results.json"
    found = json.loads(results.read_text())
    (conditions,) = found["conditions"]["agents"]
    assert conditions["environment"] == "canned answers"
    cases = {case["case"]: case["attempts"][0]["scores"][0] for case in found["sets"][0]["cases"]}
    assert {name: score["score"] for name, score in cases.items()} == {"question_1": 1.0, "question_2": 0.0}
    assert {score["criterion"] for score in cases.values()} == {"cites_order"}

    done = agent_eval("report", results, "--to", "csv", cwd=project, env=environ(installed))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "set,case,repeat,criterion,score"
    assert any(line.endswith(",question_1,1,cites_order,1.0") for line in done.stdout.splitlines())


def test_without_the_package_each_name_is_unknown(project):
    done = agent_eval("run", cwd=project, env=environ())
    assert done.returncode == 2
    assert "there is no driver `canned`" in done.stderr
    done = agent_eval("validate", cwd=project, env=environ())
    assert "this is no eval file" in done.stderr + done.stdout
    write_set(project)
    done = agent_eval("validate", cwd=project, env=environ())
    assert "unknown criterion `cites_order`" in done.stderr + done.stdout


def test_the_options_of_its_criterion_are_checked(installed, project):
    (project / "bot" / "test_config.json").write_text('{"criteria": {"cites_order": {"threshold": 1, "patern": "("}}}')
    done = agent_eval("validate", cwd=project, env=environ(installed))
    assert done.returncode == 2
    assert "pattern" in done.stderr + done.stdout


def package(folder: Path, name: str, group: str, entry: str, code: str) -> Path:
    """A package as an installer leaves it."""
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (folder / f"{name}_code.py").write_text(code)
    return folder


@pytest.mark.parametrize(
    ("entry", "code", "says"),
    [
        ("cites_order = broken_code:Match", "import nothing_of_this_name", "ModuleNotFoundError"),
        ("cites_order = broken_code:Match", "class Match: ...", "no subclass of"),
        ("tool_trajectory_avg_score = broken_code:Match", "", "which is built in"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(project, tmp_path, entry, code, says):
    write_set(project)
    site = package(tmp_path / "site", "broken", "agent_eval.criteria", entry, code)
    done = agent_eval("validate", cwd=project, env=environ(site))
    told = " ".join((done.stderr + done.stdout).split())
    assert done.returncode == 2, told
    assert "broken 1.5" in told
    assert says in told


def test_two_packages_of_one_name_are_both_named(project, tmp_path):
    write_set(project)
    entry = "cites_order = broken_code:Match"
    sites = [package(tmp_path / name, name, "agent_eval.criteria", entry, "") for name in ("broken", "other")]
    done = agent_eval("validate", cwd=project, env=environ(*sites))
    assert done.returncode == 2
    assert {"broken 1.5", "other 1.5"} <= set(re.findall(r"\w+ 1\.5", done.stderr + done.stdout))


def test_a_run_that_uses_no_package_imports_none(project, tmp_path):
    (project / "agent-eval.yaml").write_text("agents: [{path: bot}]\n")
    (project / "bot" / "agent.py").touch()
    write_set(project)
    (project / "bot" / "test_config.json").write_text('{"criteria": {"response_match_score": 0.8}}')
    site = package(tmp_path / "site", "broken", "agent_eval.criteria", "cites_order = broken_code:Match", "1 / 0")
    done = agent_eval("validate", cwd=project, env=environ(site))
    assert done.returncode == 0, done.stderr + done.stdout


def test_an_unknown_driver_is_refused_with_those_there_are(project):
    (project / "agent-eval.yaml").write_text("agents: [{path: bot, driver: recordet}]\n")
    write_set(project)
    (project / "bot" / "test_config.json").write_text('{"criteria": {"response_match_score": 0.8}}')
    done = agent_eval("run", cwd=project, env=environ())
    assert done.returncode == 2
    assert "there is no driver `recordet`" in done.stderr
    assert "recorded" in done.stderr
