"""The recipes of docs/ci.md are valid files of the CI they are for, and their commands are ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent_eval_action.ci import CIS
from agent_eval_action.config.job_variables import is_job_variable

DOCS = Path(__file__).parents[2] / "docs"
FOUND = [
    (page, *recipe)
    for page in ("ci.md", "shards.md")
    for recipe in re.findall(r"```yaml\n# (\S+)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
]
RECIPES = {(page, name): text for page, name, text in FOUND if not name.startswith(".github/")}
SCHEMAS = {
    ".gitlab-ci.yml": ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
    # its patterns are not Unicode's
    "azure-pipelines.yml": [
        *("vendor.azure-pipelines", "--data-transform", "azure-pipelines"),
        *("--regex-variant", "nonunicode"),
    ],
    "bitbucket-pipelines.yml": ["vendor.bitbucket-pipelines"],
}


def test_every_recipe_has_a_schema():
    assert {name for _, name in RECIPES} == SCHEMAS.keys()
    assert ("shards.md", ".gitlab-ci.yml") in RECIPES


@pytest.mark.parametrize(("page", "name"), RECIPES)
def test_a_recipe_is_what_its_ci_reads(tmp_path, page, name):
    file = tmp_path / name
    file.write_text(RECIPES[page, name])
    assert isinstance(yaml.safe_load(RECIPES[page, name]), dict)
    tool = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run([tool, "--builtin-schema", *SCHEMAS[name], file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tokens_of_a_ci_are_no_variables_an_agent_can_get():
    tokens = ["CI_JOB_TOKEN", "SYSTEM_ACCESSTOKEN", "BITBUCKET_STEP_OIDC_TOKEN", "BITBUCKET_ACCESS_TOKEN"]
    for name in [*tokens, *(ci.token_variable for ci in CIS if ci.token_variable)]:
        assert is_job_variable(name), name
