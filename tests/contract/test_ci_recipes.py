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

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
RECIPES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
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
    assert RECIPES.keys() == SCHEMAS.keys()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_recipe_is_what_its_ci_reads(tmp_path, name):
    file = tmp_path / name
    file.write_text(RECIPES[name])
    assert isinstance(yaml.safe_load(RECIPES[name]), dict)
    tool = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run([tool, "--builtin-schema", *SCHEMAS[name], file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tokens_of_a_ci_are_no_variables_an_agent_can_get():
    tokens = ["CI_JOB_TOKEN", "SYSTEM_ACCESSTOKEN", "BITBUCKET_STEP_OIDC_TOKEN", "BITBUCKET_ACCESS_TOKEN"]
    for name in [*tokens, *(ci.token_variable for ci in CIS if ci.token_variable)]:
        assert is_job_variable(name), name
