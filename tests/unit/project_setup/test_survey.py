"""What is found in a project, from its files alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.config.loader import load_settings
from agent_eval_action.errors import EvalFileError
from agent_eval_action.project_setup import ProjectSurvey, survey_project
from agent_eval_action.run.loader import discover_eval_files

AGENT = "from google.adk.agents import Agent\nroot_agent = Agent(name='bot', model={model})\n"


def survey(root: Path) -> ProjectSurvey:
    settings = load_settings(root)
    return survey_project(settings, discover_eval_files(settings, may_lack=True), {"PATH": os.environ["PATH"]})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    add_agent(tmp_path, '"gemini-2.5-flash"')
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def add_agent(root: Path, model: str, name: str = "bot", more: str = "") -> None:
    (root / name).mkdir(exist_ok=True)
    (root / name / "agent.py").write_text(AGENT.format(model=model) + more)


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ('"gemini-2.5-flash"', ("GOOGLE_API_KEY",)),
        ("LiteLlm(model='openai/gpt-4.1')", ("OPENAI_API_KEY",)),
        ("LiteLlm('anthropic/claude-sonnet-4')", ("ANTHROPIC_API_KEY",)),
        ("'claude-sonnet-4'", ("ANTHROPIC_API_KEY",)),
        ("LiteLlm('groq/llama-3')", ("GROQ_API_KEY",)),
        ("LiteLlm('ollama_chat/mistral')", ()),
        ("RuleBased()", ()),
    ],
)
def test_the_key_of_the_model_is_known(tmp_path, model, keys):
    add_agent(tmp_path, model)
    assert survey(tmp_path).keys == keys


def test_the_key_of_an_agent_in_yaml_is_known(tmp_path):
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "root_agent.yaml").write_text("name: bot\nmodel: gemini-2.5-flash\n")
    assert survey(tmp_path).keys == ("GOOGLE_API_KEY",)


@pytest.mark.parametrize("name", ["GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"])
def test_vertex_is_seen_in_a_dotenv_and_in_code(project, name):
    assert not survey(project).vertex
    (project / "bot" / ".env").write_text(f"{name}=TRUE\n")
    found = survey(project)
    assert found.vertex
    assert found.keys == ()
    (project / "bot" / ".env").unlink()
    add_agent(project, "'gemini-2.5-flash'", more=f"os.environ.setdefault('{name}', 'True')\n")
    assert survey(project).vertex


def test_secrets_are_what_code_asks_for_by_a_name_of_secrets_and_models_are_given(project):
    add_agent(project, "'gemini-2.5-flash'", more="a = os.environ['WEATHER_API_KEY'], os.getenv('PORT')\n")
    found = survey(project)
    assert found.secrets == ("GOOGLE_API_KEY", "WEATHER_API_KEY")
    assert found.variables == {"bot": ("PORT", "WEATHER_API_KEY")}


def test_a_key_in_the_dotenv_counts_and_its_value_is_nowhere(project):
    add_agent(project, "MODEL")
    lines = ["GEMINI_API_KEY=secretvalue", "GROQ_API_KEY=secretvalue", "CRM_TOKEN=secretvalue", "PORT=1", "A]${{_KEY=1"]
    (project / ".env").write_text("\n".join(lines))
    found = survey(project)
    assert found.keys == ("GOOGLE_API_KEY", "GROQ_API_KEY")
    assert found.variables == {"bot": ("CRM_TOKEN",)}
    assert "secretvalue" not in repr(found)


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("uv.lock", {"bot": "uv.lock"}),
        ("requirements.txt", {"bot": "requirements.txt"}),
        ("poetry.lock", {}),
        (None, {}),
    ],
)
def test_packages_and_what_cannot_be_installed(project, file, names):
    if file:
        (project / file).write_text("")
    found = survey(project)
    assert found.packages == names
    assert bool(found.lacking) is not bool(names)
    assert file != "poetry.lock" or "poetry export" in found.lacking["bot"]


@pytest.mark.parametrize(
    ("file", "remote", "cis"),
    [
        (None, None, ()),
        (None, "git@gitlab.example:group/project.git", ("gitlab",)),
        (None, "https://github.com/o/r", ("github",)),
        ("Jenkinsfile", "https://github.com/o/r", ("jenkins",)),
        (".gitlab-ci.yml", None, ("gitlab",)),
        ("azure-pipelines.yml", None, ("azure",)),
        ("bitbucket-pipelines.yml", None, ("bitbucket",)),
    ],
)
def test_the_ci_is_known_by_its_files_then_by_the_remote(project, file, remote, cis):
    if file:
        (project / file).touch()
    if remote:
        subprocess.run(["git", "-C", project, "remote", "add", "origin", remote], check=True)
    assert survey(project).cis == cis


def test_secrets_of_workflows_and_the_main_branch_are_known(project):
    folder = project / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "test.yml").write_text("env: {A: '${{ secrets.GOOGLE_API_KEY }}'}\n")
    git = ["git", "-C", str(project)]
    subprocess.run([*git, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk"], check=True)
    found = survey(project)
    assert found.known == {"GOOGLE_API_KEY"}
    assert found.branch == "trunk"


def test_a_project_without_an_agent_is_refused(tmp_path):
    with pytest.raises(EvalFileError, match="no agent found"):
        survey(tmp_path)


def test_a_dotenv_that_is_broken_or_huge_is_no_trouble(project):
    file = project / "bot" / ".env"
    file.write_bytes(b"GOOGLE_GENAI_USE_VERTEXAI=true\xff\xfe\0\n")
    assert not survey(project).vertex
    file.write_text("A=1\n" * 200_000)
    assert not survey(project).vertex


def test_models_that_judge_need_keys_as_well(tmp_path):
    add_agent(tmp_path, "LiteLlm('anthropic/claude-sonnet-4')")
    settings = load_settings(tmp_path)
    found = discover_eval_files(settings, may_lack=True)
    keys = survey_project(settings, found, {}, ["gemini-2.5-flash", "openai/gpt-4.1"]).keys
    assert keys == ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY")
