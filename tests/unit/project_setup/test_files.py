"""The files that are proposed: they are what their readers take, and nothing that is there is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agent_eval_action.config.loader import load_settings
from agent_eval_action.errors import ConfigError
from agent_eval_action.project_setup import CIS, ProjectSurvey, proposed_files, survey_project
from agent_eval_action.run.loader import discover_eval_files

BIN = Path(sys.executable).parent
DOCS = Path(__file__).parents[3] / "docs"
FORKS = Path(__file__).parents[3] / "examples" / "forks" / ".github" / "workflows"


@pytest.fixture
def found(tmp_path: Path) -> ProjectSurvey:
    (tmp_path / "bot").mkdir()
    code = "import os\nroot_agent = Agent(model='gemini-2.5-flash', key=os.environ['WEATHER_API_KEY'])\n"
    (tmp_path / "bot" / "agent.py").write_text(code)
    settings = load_settings(tmp_path)
    return survey_project(settings, discover_eval_files(settings, may_lack=True), {})


def texts(found: ProjectSurvey, root: Path, ci: str = "github", *, public: bool = False) -> dict[str, str]:
    files = proposed_files(found, load_settings(root), ci, public=public)
    return {file.path.relative_to(root).as_posix(): file.text for file in files}


VARIANTS = [
    {},
    {"keys": (), "variables": {"bot": ()}},
    {"keys": (), "variables": {"bot": ()}, "vertex": True},
    {"vertex": True},
    {"branch": "release/1.0"},
]


def test_workflows_have_nothing_that_github_or_an_auditor_would_mind(found, tmp_path):
    folder = tmp_path / "all" / ".github" / "workflows"
    folder.mkdir(parents=True)
    for number, changes in enumerate(VARIANTS):
        for public in (False, True):
            made = texts(replace(found, **changes), tmp_path, public=public)
            for name, text in made.items():
                if name.startswith(".github/"):
                    (folder / f"{number}-{public}-{Path(name).name}").write_text(text)
    files = sorted(folder.iterdir())
    assert len(files) == 3 * len(VARIANTS)
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    audit = [BIN / "zizmor", "--offline", "--no-progress", "--pedantic", folder]
    done = subprocess.run(audit, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


SCHEMAS = {
    "gitlab": ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
    "azure": ["vendor.azure-pipelines", "--data-transform", "azure-pipelines", "--regex-variant", "nonunicode"],
    "bitbucket": ["vendor.bitbucket-pipelines"],
}


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("ci", SCHEMAS)
def test_a_recipe_is_what_its_ci_reads(found, tmp_path, ci):
    for number in range(2):  # alone, and beside a pipeline of the project
        made = texts(found, tmp_path, ci)
        (name,) = [name for name in made if name.endswith(".yml")]
        file = tmp_path / f"{number}.yml"
        file.write_text(made[name])
        check = [BIN / "check-jsonschema", "--builtin-schema", *SCHEMAS[ci], file]
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (tmp_path / CIS[ci].files[0]).write_text("image: mine\n")


def plain(text: str) -> str:
    return re.sub(r" # zizmor: .*", "", text)


def test_the_pages_show_what_is_written(found, tmp_path):
    """The recipes of the pages are those of the command, for one key of the model."""
    found = replace(found, keys=("GOOGLE_API_KEY",), variables={"bot": ()})
    shown = (DOCS / "quickstart.md").read_text() + (DOCS / "ci.md").read_text()
    for ci in CIS:
        for name, text in texts(found, tmp_path, ci).items():
            if name not in {"agent-eval.yaml", ".gitignore"}:
                assert plain(text) in shown, name


def test_the_commenting_workflow_is_the_one_of_the_example(found, tmp_path):
    ours = yaml.safe_load(texts(found, tmp_path, public=True)[".github/workflows/agent-eval-comment.yml"])
    theirs = yaml.safe_load((FORKS / "post-evals.yml").read_text())
    assert ours["jobs"] == theirs["jobs"]
    measured = yaml.safe_load(texts(found, tmp_path, public=True)[".github/workflows/agent-eval.yml"])
    assert ours[True]["workflow_run"]["workflows"] == [measured["name"]]
    steps = yaml.safe_load((FORKS / "evals.yml").read_text())["jobs"]["evals"]["steps"]
    own = measured["jobs"]["agent-eval"]["steps"]
    assert own[-1] == steps[-1]
    assert own[-2]["with"] == steps[-2]["with"]


@pytest.mark.parametrize(
    ("ci", "line"),
    [
        ("github", "          WEATHER_API_KEY: ${{ secrets.WEATHER_API_KEY }}"),
        ("jenkins", "    WEATHER_API_KEY = credentials('weather-api-key')"),
        ("azure", "      WEATHER_API_KEY: $(WEATHER_API_KEY)"),
    ],
)
def test_every_secret_is_passed_and_named_for_the_agent(found, tmp_path, ci, line):
    made = texts(found, tmp_path, ci)
    assert any(line in text.splitlines() for text in made.values())
    assert yaml.safe_load(made["agent-eval.yaml"])["env"] == ["WEATHER_API_KEY"]


@pytest.mark.parametrize("ci", ["github", "azure", "bitbucket"])
def test_the_main_branch_is_the_projects(found, tmp_path, ci):
    made = texts(replace(found, branch="trunk"), tmp_path, ci)
    assert not re.search(r"\[main\]|^    main:$|:-main", "".join(made.values()), re.MULTILINE)
    assert "trunk" in "".join(made.values())


def test_a_workflow_that_runs_the_action_by_another_name_is_enough(found, tmp_path):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "evals.yml").write_text("on: [pull_request]\njobs: {a: {steps: [{uses: org/agent-eval-action@v0}]}}\n")
    settings = load_settings(tmp_path)
    again = survey_project(settings, discover_eval_files(settings, may_lack=True), {})
    assert again.gates == ("evals.yml",)
    assert texts(again, tmp_path).keys() == {"agent-eval.yaml", ".gitignore"}
    (folder / "evals.yml").unlink()
    for name, text in texts(found, tmp_path, public=True).items():
        (tmp_path / name).write_text(text)
    own = survey_project(settings, discover_eval_files(settings, may_lack=True), {})
    assert own.gates == ("agent-eval-comment.yml", "agent-eval.yml")
    assert texts(own, tmp_path, public=True) == texts(found, tmp_path, public=True)


@pytest.mark.parametrize("ci", ["gitlab", "jenkins", "azure"])
def test_a_pipeline_of_the_project_is_left_alone(found, tmp_path, ci):
    own = tmp_path / CIS[ci].files[0]
    own.write_text("stages: [build]\n")
    files = proposed_files(found, load_settings(tmp_path), ci, public=False)
    assert own not in {file.path for file in files}
    assert not any(file.overwrites for file in files)


def test_the_only_pipeline_a_ci_reads_would_be_overwritten(found, tmp_path):
    (tmp_path / "bitbucket-pipelines.yml").write_text("pipelines: {}\n")
    (file,) = [one for one in proposed_files(found, load_settings(tmp_path), "bitbucket", public=False) if one.before]
    assert file.overwrites
    assert "-pipelines: {}" in list(file.diff(tmp_path))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ".env\n.venv/\n__pycache__/\n.adk/\n"),
        ("/.env\n.venv\n__pycache__\n.adk/", "/.env\n.venv\n__pycache__\n.adk/"),
        ("# mine\n*.log", "# mine\n*.log\n.env\n.venv/\n__pycache__/\n.adk/\n"),
        ("*.log\r\n.env\r\n", "*.log\r\n.env\r\n.venv/\r\n__pycache__/\r\n.adk/\r\n"),
    ],
)
def test_gitignore_keeps_its_lines_and_gets_those_it_lacks(found, tmp_path, before, after):
    if before is not None:
        (tmp_path / ".gitignore").write_text(before, newline="")
    (file,) = [one for one in proposed_files(found, load_settings(tmp_path), "github", public=False) if one.extends]
    assert file.text == after
    assert not file.overwrites


@pytest.mark.parametrize("name", [".gitignore", "agent-eval.yml"])
def test_a_file_that_cannot_be_read_or_is_a_link_is_refused(found, tmp_path, name):
    settings = load_settings(tmp_path)
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=f"{name} cannot be read"):
        proposed_files(found, settings, "github", public=False)
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match=name):
        [file.write(tmp_path) for file in proposed_files(found, settings, "github", public=False)]
