"""What an attempt is made with, as digests: what gives other answers gives another digest, and nothing else does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.config.options import AGENT_ENTRY, OPTIONS
from agent_eval_action.results.run_result import AgentConditions, Provenance
from agent_eval_action.run.resume import attempt_provenance, cli_arguments, environment_digest

CONFIG = "agent: {path: bot, env: {TONE: dry, SEEN: null, API_KEY: one}}\n"
ENVIRON = {"SEEN": "here", "UNSEEN": "x"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name, text in {
        "bot/agent.py": "root_agent = None\n",
        "bot/prompt.txt": "Answer.\n",
        "evals/s.evalset.json": "{}",
        "agent-eval.yaml": CONFIG,
        ".gitignore": "*.log\n.env\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def made(workspace: Path, **environ: str) -> Provenance:
    settings = resolve(flags={}, environ={}, cwd=workspace).settings
    hidden = [Path("evals/s.evalset.json"), Path("agent-eval.yaml")]
    return attempt_provenance(settings, settings.agents, {**ENVIRON, **environ}, hidden)["bot"]


def changed(workspace: Path, change: Callable[[Path], object], **environ: str) -> set[str]:
    before = made(workspace)
    change(workspace)
    after = made(workspace, **environ)
    return {name for name in Provenance.model_fields if getattr(before, name) != getattr(after, name)}


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda root: ((root / name).parent.mkdir(parents=True, exist_ok=True), (root / name).write_text(text))


def configure(old: str, new: str) -> Callable[[Path], object]:
    return write("agent-eval.yaml", CONFIG.replace(old, new))


def moved(root: Path) -> None:
    (root / "bot").rename(root / "agents")
    configure("path: bot", "path: agents, name: bot")(root)


CODE, SETTINGS, NOTHING = {"code"}, {"settings"}, set[str]()


@pytest.mark.parametrize("repository", [True, False])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (write("bot/agent.py", "root_agent = 1\n"), CODE),
        (write("bot/prompt.txt", "Answer briefly.\n"), CODE),
        (write("shared/new.py", ""), CODE),
        (lambda root: (root / "bot" / "prompt.txt").unlink(), CODE),
        (lambda root: (root / "bot" / "prompt.txt").rename(root / "bot" / "p.txt"), CODE),
        (lambda root: ((root / "bot/prompt.txt").unlink(), (root / "bot/prompt.txt").symlink_to("x")), CODE),
        (write(".agent-eval/out/results.json", "{}"), NOTHING),
        (write("evals/s.evalset.json", '{"eval_cases": []}'), NOTHING),
        (configure("dry", "warm"), SETTINGS),
        (configure("TONE: dry, ", ""), SETTINGS),
        (configure("one", "two"), NOTHING),
        (moved, CODE | SETTINGS),
        (lambda _: None, NOTHING),
    ],
)
def test_what_gives_other_answers_changes_a_digest_and_nothing_else_does(
    workspace: Path, change: Callable[[Path], object], what: set[str], repository: bool
) -> None:
    if repository:
        subprocess.run(["git", "init", "--quiet", str(workspace)], check=True)
    assert changed(workspace, change) == what


def test_in_a_repository_what_git_ignores_is_left_out_but_for_dotenv(workspace: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(workspace)], check=True)
    assert changed(workspace, write("bot/made.log", "x")) == NOTHING
    assert changed(workspace, write("bot/.env", "MODEL=x\n")) == CODE


@pytest.mark.parametrize(
    ("environ", "what"),
    [
        ({"SEEN": "elsewhere"}, SETTINGS),
        ({"UNSEEN": "y"}, NOTHING),
        ({"GOOGLE_API_KEY": "another"}, NOTHING),
        ({"OPENAI_BASE_URL": "https://judges.example"}, {"judges"}),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, {"judges"}),
        ({"GOOGLE_GEMINI_BASE_URL": "https://judges.example"}, {"judges"}),
    ],
)
def test_variables_count_where_an_agent_or_a_judge_goes_by_them(
    workspace: Path, environ: dict[str, str], what: set[str]
) -> None:
    assert changed(workspace, lambda _: None, **environ) == what


def test_a_recording_is_what_it_holds(workspace: Path) -> None:
    write("good/attempts.jsonl", "{}\n")(workspace)
    configure("path: bot", "path: bot, driver: recorded, recording: good")(workspace)
    assert "settings" in changed(workspace, write("good/attempts.jsonl", "{}\n{}\n"))


@pytest.mark.parametrize("other", [{"python": "3.13"}, {"adk_version": "2"}, {"packages_digest": "b"}])
def test_another_python_adk_or_package_is_another_environment(other: dict[str, str]) -> None:
    then = AgentConditions(agent="bot", path="bot", python="3.12", adk_version="1", packages_digest="a")
    assert environment_digest(then) != environment_digest(then.model_copy(update=other))
    assert environment_digest(then) == environment_digest(then.model_copy(update={"path": "elsewhere"}))


def test_what_decides_answers_is_an_agents_own() -> None:
    decisive = {name for name, option in AGENT_ENTRY.items() if option.info.decides_answers}
    assert decisive == {"path", "driver", "recording", "url", "command", "function", "model", "env"}
    assert not [option.name for option in OPTIONS if option.info.decides_answers and option.name not in AGENT_ENTRY]


def test_a_run_is_repeated_by_what_chose_its_file_its_agents_and_its_cases(workspace: Path) -> None:
    def words(**flags: object) -> tuple[str, ...]:
        return cli_arguments(resolve(flags=flags, environ={}, cwd=workspace).settings, ["s.evalset.json:one"])

    assert words() == ("s.evalset.json:one",)
    assert words(config=workspace / "agent-eval.yaml") == words()
    write("ci/eval.yaml", "agents: [{path: ../bot, name: b}, {path: ../other}]\n")(workspace)
    write("other/agent.py", "root_agent = None\n")(workspace)
    given = {"config": workspace / "ci" / "eval.yaml", "case": ["a*", "b"]}
    cases = ("--case", "a*", "--case", "b")
    assert words(**given) == ("s.evalset.json:one", "--config", "ci/eval.yaml", *cases)
    assert words(**given, agent=["b"]) == (*words(**given)[:3], "--agent", "bot", *cases)
