"""Both actions offer exactly the options there are, and promise exactly the outputs that are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent_eval_action.cli.outputs import REPORT_FILES, outputs
from agent_eval_action.config.options import CREDENTIALS, NO_OPTIONS, OPTIONS, given_credentials
from agent_eval_action.reports import ReportInput, results_json
from tools.action_files import HOST

ROOT = Path(__file__).resolve().parents[2]
FILES = {False: ROOT / "action.yml", True: ROOT / "host" / "action.yml"}
ACTION, ON_HOST = (yaml.load(path.read_text(), yaml.CSafeLoader) for path in FILES.values())
OUTPUTS = ROOT / "docs" / "container.md"
BIN = Path(sys.executable).parent


def test_the_generated_yaml_has_the_intended_values():
    """The other tests compare text with text: this one reads the YAML."""
    assert list(ACTION["inputs"]) == [option.input for option in OPTIONS] + [one.name for one in NO_OPTIONS]
    for option in OPTIONS:
        entry = ACTION["inputs"][option.input]
        assert entry["description"].startswith(option.help), option.name
        assert option.shown in entry["description"], option.name
    assert list(ON_HOST["inputs"]) == [*ACTION["inputs"], *(one.name for one in HOST)]
    assert {name: ON_HOST["inputs"][name] for name in ACTION["inputs"]} == ACTION["inputs"]


def test_a_default_is_what_only_github_knows_and_never_wins_over_the_file():
    given = {name: entry["default"] for name, entry in ON_HOST["inputs"].items() if "default" in entry}
    for name, default in given.items():
        assert re.fullmatch(r"\$\{\{ [^}]+ \}\}", default), name
    keys = {option.input for option in OPTIONS if option.key}
    assert not keys & set(given), "agent-eval.yaml could not say it any more"


@pytest.mark.parametrize("name", ON_HOST["inputs"])
def test_an_inputs_name_survives_the_runner(name):
    assert re.fullmatch(r"[a-z][a-z0-9-]*", name)
    assert name not in {"args", "entrypoint"}, "without runs.args this would become the container's own"


def test_the_composite_gives_each_input_under_the_name_a_shell_can_set():
    steps = ON_HOST["runs"]["steps"]
    env = steps[-1]["env"]
    for name in ACTION["inputs"]:
        assert env[f"INPUT_{name.upper().replace('-', '_')}"] == f"${{{{ inputs.{name} }}}}"
    assert set(env) - {"TOOL"} == {f"INPUT_{name.upper().replace('-', '_')}" for name in ACTION["inputs"]}
    used = {value for step in steps for value in step["env"].values()}
    assert used >= {f"${{{{ inputs.{one.name} }}}}" for one in HOST}


def test_no_expression_is_put_into_a_shell():
    for step in ON_HOST["runs"]["steps"]:
        assert "${{" not in step["run"], "a title of a pull request would be run"
        assert step["shell"] == "bash"


@pytest.mark.parametrize("one", CREDENTIALS, ids=lambda one: one.variable)
@pytest.mark.parametrize("spelling", [0, 1])
def test_a_credential_stands_for_its_variable_in_both_spellings(one, spelling):
    name = one.variables[spelling]
    assert given_credentials({name: " value ", one.variable: "of env"}) == {one.variable: "value"}
    assert given_credentials({name: "", one.variable: "of env"}) == {}
    assert ACTION["inputs"][one.name]["description"].endswith(f"`{one.variable}`.")


def test_the_jobs_token_reads_and_writes_the_branch_too_and_never_replaces_one_that_was_set():
    assert given_credentials({"INPUT_GITHUB-TOKEN": "job"}) == {"GITHUB_TOKEN": "job"}
    assert given_credentials({"INPUT_GITHUB-TOKEN": "job", "GITHUB_TOKEN": "mine"}) == {}


def test_every_output_promised_is_written_and_no_other():
    result = results_json.read(ROOT / "tests" / "golden" / "regressed" / "results.json")
    paths = {name: f"out/{name}" for name in ("results", *REPORT_FILES)}
    written = outputs(ReportInput(result), paths)
    assert set(written) == set(ACTION["outputs"])
    assert {name for name, value in written.items() if not value} == {"cost"}, "the golden run's models have no price"
    assert (written["verdict"], written["report"]) == ("fail", "out/html")


def test_both_actions_promise_the_same_outputs_and_the_page_shows_them():
    assert list(ON_HOST["outputs"]) == list(ACTION["outputs"])
    page = OUTPUTS.read_text()
    for name, entry in ACTION["outputs"].items():
        assert ON_HOST["outputs"][name] == {**entry, "value": f"${{{{ steps.run.outputs.{name} }}}}"}
        assert f"| `{name}` | {entry['description']}" in page, name


def test_the_container_runs_and_restores_the_workspaces_owner():
    runs = ACTION["runs"]
    assert (runs["using"], runs["args"]) == ("docker", ["run"])
    assert runs["post-entrypoint"].startswith("/"), "it is looked up in the image, where nothing of ours is on the PATH"
    assert runs["post-entrypoint"].rpartition("/")[2] in (ROOT / "Dockerfile").read_text()
    assert ACTION["branding"] == {"icon": "shield", "color": "blue"}


def test_the_files_are_what_github_takes():
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-actions", *FILES.values()]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
