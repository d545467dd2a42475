"""``agent-eval init``: on a terminal, in a pipe, with an agent that answers and with one that cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from support.command import agent_eval
from support.pseudo_terminal import PseudoTerminal

DICE = Path(__file__).parents[3] / "examples" / "dice"
WORKFLOW = ".github/workflows/agent-eval.yml"
NO_CI = dict.fromkeys(("CI", "GITHUB_ACTIONS"), "")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An agent in a repository without anything else."""
    root = tmp_path / "project"
    shutil.copytree(DICE / "dice_agent", root / "dice_agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DICE / "requirements.txt", root)
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


def init(project: Path, *words: str, python: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environ["HOME"] = str(project.parent)
    if python is not None:
        environ["VIRTUAL_ENV"] = str(python.parent.parent)
    return agent_eval("init", *words, cwd=project, env=environ)


def written(project: Path) -> set[str]:
    """Everything that was not there before."""
    command = ["git", "-C", project, "ls-files", "--others"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    return {name for name in names if name and not name.startswith(("dice_agent/", "requirements", ".agent-eval/"))}


def test_a_project_without_cases_has_a_gate_afterwards(project: Path, adk213_python: Path) -> None:
    done = init(project, "--yes", python=adk213_python)
    assert done.returncode == 0, done.stderr
    evals = "evals/dice_agent.evalset.json"
    assert written(project) == {"agent-eval.yaml", WORKFLOW, ".gitignore", evals, "evals/test_config.json"}
    cases = json.loads((project / evals).read_text())["eval_cases"]
    assert len(cases) == 3
    assert all(case["conversation"][0]["final_response"]["parts"][0]["text"] for case in cases)
    assert "1. agent-eval baseline update" in done.stderr
    validated = agent_eval("validate", cwd=project)
    assert validated.returncode == 0, validated.stderr
    assert "1 file checked, 0 errors, 0 warnings" in validated.stderr
    before = {name: (project / name).read_bytes() for name in written(project)}
    again = init(project)
    assert again.returncode == 0, again.stderr
    assert "nothing is asked, for this is no terminal" in again.stderr
    assert "nothing was written" in again.stderr
    assert before == {name: (project / name).read_bytes() for name in written(project)}


@pytest.mark.exhaustive
def test_agents_beside_each_other_get_cases_of_their_own(project: Path, adk213_python: Path) -> None:
    shutil.copytree(project / "dice_agent", project / "second_agent")
    done = init(project, "--yes", python=adk213_python)
    assert done.returncode == 0, done.stderr
    listed = agent_eval("list", "--json", cwd=project)
    assert listed.returncode == 0, listed.stderr
    sets = {agent["agent"]: [one["path"] for one in agent["sets"]] for agent in json.loads(listed.stdout)["agents"]}
    assert sets == {name: [f"evals/{name}.evalset.json"] for name in ("dice_agent", "second_agent")}


@pytest.mark.exhaustive
def test_ctrl_c_while_the_agent_is_asked_leaves_the_files_and_no_process(project: Path, adk213_python: Path) -> None:
    mark = project / "pid"
    code = f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    (project / "dice_agent" / "agent.py").write_text(f"{code}root_agent = None\n")
    seen = PseudoTerminal("init", "--yes", cwd=project, VIRTUAL_ENV=str(adk213_python.parent.parent), **NO_CI)
    seen.wait_for("imports the agent")
    while not (mark.is_file() and mark.read_text()):
        os.sched_yield()
    seen.interrupt()
    assert seen.end() == 130
    assert {"agent-eval.yaml", WORKFLOW} <= written(project)
    assert f"written: {WORKFLOW}" in seen.text
    while Path(f"/proc/{mark.read_text()}").exists():  # the test's own limit ends this
        os.sched_yield()


def test_what_differs_is_shown_and_kept_until_it_is_forced(project: Path) -> None:
    (project / "agent-eval.yaml").write_text("agent: dice_agent\n")
    (project / WORKFLOW).parent.mkdir(parents=True)
    (project / WORKFLOW).write_text("name: \x1b[31mmine\n")
    (project / ".gitignore").write_text("*.log")
    done = init(project, "--yes", "--no-capture")
    assert done.returncode == 0, done.stderr
    assert "-agent: dice_agent" in done.stderr
    assert "+max_time: 45m      # the default" in done.stderr
    assert "+  pull_request:\n" in done.stderr
    assert "\x1b" not in done.stderr
    assert "agent-eval.yaml differs as shown above; --force agent-eval.yaml replaces it" in done.stderr
    assert (project / "agent-eval.yaml").read_text() == "agent: dice_agent\n"
    assert (project / WORKFLOW).read_text() == "name: \x1b[31mmine\n"
    assert (project / ".gitignore").read_text().startswith("*.log\n.env\n")
    (project / ".gitignore").unlink()
    forced = init(project, "--force", WORKFLOW)
    assert forced.returncode == 0, forced.stderr
    assert (project / "agent-eval.yaml").read_text() == "agent: dice_agent\n"
    assert not (project / ".gitignore").exists(), "only what is named"
    assert yaml.safe_load((project / WORKFLOW).read_text())["jobs"].keys() == {"agent-eval", "main"}


def test_an_agent_that_cannot_be_asked_is_named_and_the_files_are_there(project: Path, adk213_python: Path) -> None:
    (project / "dice_agent" / "agent.py").write_text("root_agent = 1 / 0  # | <script>\n")
    done = init(project, "--yes", python=adk213_python)
    assert done.returncode == 3, done.stderr
    assert "dice_agent could not be asked: " in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "later: agent-eval capture --agent dice_agent" in done.stderr
    assert written(project) == {"agent-eval.yaml", WORKFLOW, ".gitignore"}


def test_a_name_of_a_folder_cannot_command_the_terminal(project: Path) -> None:
    (project / "dice_agent").rename(project / "\x1b]0;owned\x07<script>|@everyone\u202e")
    done = init(project, "--yes", "--no-capture")
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stderr)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ci", "travis"), "--ci 'travis' is none of github, gitlab, jenkins, azure, bitbucket"),
        (("--yess",), "there is no option --yess"),
        (("agent-eval.yml",), "it writes agent-eval.yaml, .github/workflows/agent-eval.yml, .gitignore"),
    ],
)
def test_wrong_words_are_refused(project: Path, words: tuple[str, ...], says: str) -> None:
    done = init(project, *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert not written(project)


def test_a_folder_of_a_repository_is_sent_to_its_root(project: Path) -> None:
    done = init(project / "dice_agent", "--yes")
    assert done.returncode == 2
    assert f"cd {project}" in done.stderr
    assert not written(project)


def test_a_judge_needs_its_key_in_the_workflow(project: Path) -> None:
    turn = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "hi"}]}}
    (project / "a.evalset.json").write_text(
        json.dumps({"eval_set_id": "a", "eval_cases": [{"eval_id": "c", "conversation": [turn]}]})
    )
    (project / "test_config.json").write_text('{"criteria": {"final_response_match_v2": 0.8}}')
    done = init(project, "--yes")
    assert done.returncode == 0, done.stderr
    assert "captured" not in done.stderr
    assert "gh secret set GOOGLE_API_KEY" in done.stderr
    assert "GOOGLE_API_KEY: ${{ secrets.GOOGLE_API_KEY }}" in (project / WORKFLOW).read_text()


def test_what_was_written_is_what_a_second_time_would_write(project: Path) -> None:
    code = "import os\nkey = os.environ['WEATHER_API_KEY']\nroot_agent = Agent(model='gemini-2.5-flash')\n"
    (project / "dice_agent" / "agent.py").write_text(code)
    (project / ".env").write_text("CRM_TOKEN=1\n")
    for says in ("written: agent-eval.yaml", "nothing was written"):
        done = init(project, "--yes", "--no-capture", "--public")
        assert done.returncode == 0, done.stderr
        assert says in done.stderr
        assert "differs" not in done.stderr
        assert yaml.safe_load((project / "agent-eval.yaml").read_text())["env"] == ["CRM_TOKEN", "WEATHER_API_KEY"]
        for name in ("agent-eval.yaml", WORKFLOW):  # as git checks them out on Windows
            (project / name).write_bytes((project / name).read_bytes().replace(b"\n", b"\r\n"))


def test_a_baseline_that_is_there_need_not_be_made(project: Path) -> None:
    assert "1. agent-eval capture" in init(project, "--yes", "--no-capture").stderr
    (project / ".agent-eval").mkdir(exist_ok=True)
    (project / ".agent-eval/baseline.json").write_text("{}")
    assert "agent-eval baseline update" not in init(project, "--yes", "--no-capture").stderr


@pytest.mark.parametrize("link", [".github", "agent-eval.yaml"])
def test_nothing_is_written_through_a_link(project: Path, link: str) -> None:
    target = project.parent / "elsewhere"
    target.mkdir()
    (project / link).symlink_to(target)
    done = init(project, "--yes", "--no-capture", "--force")
    assert done.returncode == 2, done.stderr
    assert link in done.stderr
    assert not list(target.iterdir())


def test_a_project_without_an_agent_is_left_alone(tmp_path: Path) -> None:
    done = init(tmp_path, "--yes")
    assert done.returncode == 2
    assert "no agent found" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("width", [80, 140])
def test_three_questions_are_asked_at_most(project: Path, width: int) -> None:
    seen = PseudoTerminal("init", cwd=project, width=width, **NO_CI)
    seen.wait_for("Which CI is it for? github, gitlab, jenkins, azure, bitbucket [github] ")
    seen.type("svn")
    seen.wait_for("an empty line takes the one in brackets")
    seen.wait_for("[github] ")
    seen.type("github")
    seen.wait_for("Do forks send pull requests, as to a public repository? [y/N] ")
    seen.type("y")
    seen.wait_for("Ask the agent 3 messages now, and keep its answers as cases? [Y/n] ")
    seen.type("n")
    assert seen.end() == 0
    assert {WORKFLOW, ".github/workflows/agent-eval-comment.yml"} <= written(project)
    assert all(len(line) <= width for line in seen.lines)
    assert "  1. agent-eval capture: talk to the agent" in seen.text


def test_what_is_known_is_not_asked_and_ctrl_d_takes_the_defaults(project: Path) -> None:
    (project / ".gitlab-ci.yml").write_text("stages: [test]\n")
    seen = PseudoTerminal("init", cwd=project, **NO_CI)
    seen.wait_for("Ask the agent 3 messages")
    assert "Which CI" not in seen.raw
    assert "Do forks" not in seen.raw
    seen.type("no")
    assert seen.end() == 0
    assert ".gitlab/agent-eval.yml" in written(project)
    assert "include it in .gitlab-ci.yml" in seen.text
    seen = PseudoTerminal("init", "--no-capture", "--ci", "github", cwd=project, **NO_CI)
    seen.wait_for("[y/N] ")
    seen.press("^D")
    assert seen.end() == 0
    assert ".github/workflows/agent-eval-comment.yml" not in written(project)


def test_ctrl_c_at_a_question_writes_nothing(project: Path) -> None:
    seen = PseudoTerminal("init", cwd=project, **NO_CI)
    seen.wait_for("[github] ")
    seen.interrupt()
    assert seen.end() == 130
    assert not written(project)
