"""An answer that judges reject and that is intended: what the comment says to do lets the change through."""

from __future__ import annotations

import re
import shlex

import pytest

from support.gemini_server.messages import ModelRequest, Reply
from support.repositories import run_git

from .conftest import Judged, case, clerk

PULL_REQUEST = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}
SHY = "Never say a number."


def agent(request: ModelRequest) -> Reply:
    return Reply(text="I cannot tell.") if SHY in request.instruction else clerk(request)


@pytest.mark.exhaustive
def test_what_judges_reject_is_accepted_as_the_comment_says(judged: Judged) -> None:
    judged.model.agent = agent
    judged.model.verdict = lambda _kind, texts: "no" if "cannot tell" in str(texts) else "yes"
    judged.configure(reruns="auto")
    judged.cases(case("rome"), case("oslo", "Oslo"))
    run_git(judged.root, "init", "--quiet", "--initial-branch=main")

    def commit(message: str) -> None:
        run_git(judged.root, "add", "--all")
        run_git(judged.root, "commit", "--quiet", "-m", message)

    commit("main")
    assert judged.command("baseline", "update").code == 0
    commit("baseline")
    run_git(judged.root, "checkout", "--quiet", "-b", "pr")
    file = judged.root / "clerk" / "agent.py"
    changed = re.sub(r'(instruction=")', rf"\1{SHY} ", file.read_text())
    assert changed != file.read_text()
    file.write_text(changed)
    commit("say no numbers")
    judged.environ.update(PULL_REQUEST)
    ended = judged.run()
    assert ended.code == 1, ended.said
    assert "fell from 1.00 to 0.00" in ended.comment, "it is the mean that blocks"

    part = ended.comment[ended.comment.index("If the change is intended") :]
    block = part[part.index("```sh\n") + len("```sh\n") :]
    for name in PULL_REQUEST:
        del judged.environ[name]
    for line in block[: block.index("\n```")].splitlines():
        done = judged.command(*shlex.split(line)[1:])
        assert done.code == 0, done.said
    commit("accept it")
    judged.environ.update(PULL_REQUEST)
    ended = judged.run()
    assert ended.code == 0, ended.said
    assert all(pair["accepted"] for pair in ended.results["decision"]["pairs"])
