"""The variables of a CI job that no agent gets are those that docs/agents.md lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_eval_action.config.job_variables import JOB_VARIABLE_NAMES, JOB_VARIABLE_PREFIXES, is_job_variable

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
_, _, REST = PAGE.partition("**Variables of the CI job never pass**")
LISTED = re.findall(r"`([A-Z][A-Z0-9_]*\*?)`", REST[: REST.index("A configuration\nthat names one is refused")])


def test_the_page_lists_all_of_them_and_nothing_else():
    assert sorted(LISTED) == sorted([*JOB_VARIABLE_NAMES, *(f"{prefix}_*" for prefix in JOB_VARIABLE_PREFIXES)])


@pytest.mark.parametrize("name", LISTED)
def test_a_listed_variable_is_one_of_the_job(name):
    assert is_job_variable(name.replace("*", "ANYTHING"))
    assert not is_job_variable(f"MY_{name}")
