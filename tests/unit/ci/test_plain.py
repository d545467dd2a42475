"""What the variables of each CI say a run is of, also where they make no sense."""

from __future__ import annotations

import pytest

from agent_eval_action.ci import CIS, detect
from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.github_actions import GitHubActions
from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import EventKind

SHA, HEAD = "a" * 40, "b" * 40
GITLAB = {"GITLAB_CI": "true", "CI_PROJECT_PATH": "org/repo", "CI_COMMIT_SHA": SHA, "CI_DEFAULT_BRANCH": "main"}
AZURE = {"TF_BUILD": "True", "BUILD_SOURCEVERSION": SHA, "BUILD_REPOSITORY_NAME": "org/repo"}
BITBUCKET = {"BITBUCKET_BUILD_NUMBER": "12", "BITBUCKET_REPO_FULL_NAME": "org/repo", "BITBUCKET_COMMIT": SHA}
JENKINS = {"JENKINS_URL": "https://j", "JOB_NAME": "bot/PR-7", "GIT_COMMIT": SHA}

CHANGES = {
    "gitlab": GITLAB | {"CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "release/1"},
    "azure": AZURE
    | {"SYSTEM_PULLREQUEST_PULLREQUESTNUMBER": "7", "SYSTEM_PULLREQUEST_TARGETBRANCH": "refs/heads/release/1"},
    "bitbucket": BITBUCKET | {"BITBUCKET_PR_ID": "7", "BITBUCKET_PR_DESTINATION_BRANCH": "release/1"},
    "jenkins": JENKINS | {"CHANGE_ID": "7", "CHANGE_TARGET": "release/1"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_has_its_number_and_the_branch_it_is_for(name):
    job = detect(CHANGES[name]).job(CHANGES[name])
    assert (job.event.kind, job.event.base_ref) == (EventKind.CHANGE, "release/1")
    assert job.event.base_sha is None, "the base is asked of git alone"
    assert job.change_request is not None
    assert job.change_request.number == 7
    assert job.event.is_change
    assert not job.withheld
    assert "actions/checkout" not in job.event.clone_hint


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("number", ["", "x", "-1", "٣", "9" * 40, "7; rm"])
def test_a_number_that_is_none_is_no_change_request_and_the_branch_still_makes_a_change(name, number):
    numbers = ("CI_MERGE_REQUEST_IID", "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER", "BITBUCKET_PR_ID", "CHANGE_ID")
    environ = {key: number if key in numbers else value for key, value in CHANGES[name].items()}
    environ["BUILD_REASON"] = "PullRequest"
    job = detect(environ).job(environ)
    assert job.change_request is None
    assert job.event.is_change


@pytest.mark.parametrize("sha", ["--upload-pack=x", "HEAD", "", "a" * 39])
def test_a_commit_that_is_no_whole_name_is_none(sha):
    for environ in CHANGES.values():
        changed = {key: sha if value == SHA else value for key, value in environ.items()}
        job = detect(changed).job(changed)
        assert (job.commit, job.event.sha, job.event.head_sha) == (None, None, None)


@pytest.mark.parametrize(
    ("environ", "kind", "on_main"),
    [
        (GITLAB | {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}, EventKind.PUSH, True),
        (GITLAB | {"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main"}, EventKind.SCHEDULE, True),
        (GITLAB | {"CI_PIPELINE_SOURCE": "web", "CI_COMMIT_BRANCH": "x"}, EventKind.MANUAL, False),
        (GITLAB | {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_TAG": "v1"}, EventKind.PUSH, False),
        (GITLAB | {"CI_PIPELINE_SOURCE": "external_pull_request_event"}, EventKind.OTHER, False),
        (AZURE | {"BUILD_REASON": "IndividualCI", "BUILD_SOURCEBRANCH": "refs/heads/main"}, EventKind.OTHER, False),
        (BITBUCKET | {"BITBUCKET_BRANCH": "main"}, EventKind.OTHER, False),
        (JENKINS | {"BRANCH_NAME": "main", "BRANCH_IS_PRIMARY": "true"}, EventKind.PUSH, True),
        (JENKINS | {"BRANCH_NAME": "x"}, EventKind.OTHER, False),
    ],
)
def test_what_is_no_change(environ, kind, on_main):
    event = detect(environ).job(environ).event
    assert (event.kind, event.on_main, event.is_change) == (kind, on_main, False)
    assert not event.keeps_branch


def test_the_results_of_merged_results_are_of_the_head():
    environ = CHANGES["gitlab"] | {"CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD}
    assert detect(environ).job(environ).commit == HEAD
    assert detect(CHANGES["gitlab"]).job(CHANGES["gitlab"]).commit == SHA
    assert detect(environ).job(environ).change_request == ChangeRequest("org/repo", 7, "!")


def test_github_comes_first_and_nothing_is_what_is_left():
    assert isinstance(detect(JENKINS | {"GITHUB_ACTIONS": "true"}), GitHubActions)
    assert detect({"CI": "true"}).job({"CI": "true"}) == detect({}).job({})
    assert [type(detect(environ)) for environ in CHANGES.values()] == [type(ci) for ci in CIS[1:]]


@pytest.mark.parametrize("environ", [{}, AZURE, BITBUCKET, JENKINS])
def test_what_takes_no_comments_says_where_they_are_posted(environ):
    with pytest.raises(UsageError, match="workflow_run"):
        detect(environ).posted_run(environ)
