"""Agents that say what they are made of: a pull request that touches none of it runs nothing, and says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.messages import headline

NOTHING = "nothing relevant changed"


def case(name: str) -> dict[str, Any]:
    parts = {"role": "user", "parts": [{"text": "roll"}]}
    answer = {"role": "model", "parts": [{"text": "six"}]}
    return {"eval_id": name, "conversation": [{"user_content": parts, "final_response": answer}]}


class Monorepo:
    """Two agents (recordings) in a repository with main, and a pull request checked out as its merge commit."""

    def __init__(self, root: Path) -> None:
        self.root, self.output = root / "repo", root / "output.txt"
        self.event = root / "event.json"
        self.root.mkdir()
        for agent in ("booking", "support"):
            self.write(f"agents/{agent}/agent.py", "root_agent = None\n")
            self.write(
                f"agents/{agent}/evals/s.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": [case("a")]})
            )
            self.write(
                f"agents/{agent}/evals/test_config.json", json.dumps({"criteria": {"response_match_score": 0.8}})
            )
            turn = case("a")["conversation"][0]
            line = {"agent": agent, "eval_set": f"{agent}/evals/s", "case": "a", "repeat": 0, "case_digest": "x"}
            self.write(f"agents/{agent}/recording/attempts.jsonl", json.dumps({**line, "turns": [turn]}) + "\n")
        self.write("libs/shared/words.py", "WORDS = ()\n")
        self.write("agents/support/requirements.txt", "-e ../../libs/installed\n")
        self.write("libs/installed/setup.py", "")
        self.write("docs/index.md", "hello\n")
        self.write(".github/workflows/evals.yml", "on: pull_request\n")
        self.write(".gitignore", ".agent-eval/out\n.agent-eval/cache\n")
        self.configure(booking=["libs/shared"], support=[])
        self.git("init", "-qb", "main")
        self.base = self.commit()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def configure(self, **paths: list[str] | None) -> None:
        agents = []
        for name, own in paths.items():
            entry = {"path": f"agents/{name}", "evals": f"agents/{name}/evals", "recording": f"agents/{name}/recording"}
            agents.append(entry if own is None else {**entry, "paths": own})
        self.write("agent-eval.yaml", json.dumps({"agents": agents}))

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *who, *words], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", "x")
        return self.git("rev-parse", "HEAD")

    def change(self, path: str, text: str | None = "changed\n") -> None:
        """A pull request that changes one file (None: removes it), as GitHub merges it onto a main that went on."""
        self.git("checkout", "-qb", "change")
        if text is None:
            (self.root / path).unlink()
        else:
            self.write(path, text)
        self.head = self.commit()
        self.git("checkout", "-q", "main")
        self.write("agents/booking/main_went_on.py", f"x = '{self.head}'\n")
        self.commit()
        self.git("checkout", "-q", "--detach", "main")
        self.git("merge", "-q", "--no-ff", "-m", "merge", "change")

    def run(self, event: str = "pull_request", **more: str) -> tuple[int, dict[str, Any], str]:
        merge = self.git("rev-parse", "HEAD")
        side = {"sha": self.base, "ref": "main", "repo": {"id": 1}}
        payload: dict[str, Any] = {"repository": {"default_branch": "main", "id": 1}}
        if event == "merge_group":
            onto = self.git("rev-parse", "HEAD^1")
            payload["merge_group"] = {"base_sha": onto, "head_sha": merge, "base_ref": "refs/heads/main"}
        if event.startswith("pull_request"):
            head = {**side, "sha": self.head, "ref": "change"}
            payload["pull_request"] = {"number": 2, "base": side, "head": head}
        self.event.write_text(json.dumps(payload))
        kept = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "TMPDIR")
        job = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(self.event),
            "GITHUB_REPOSITORY": "octo-org/Hello-World",
            "GITHUB_WORKFLOW_REF": "octo-org/Hello-World/.github/workflows/evals.yml@refs/pull/2/merge",
            "GITHUB_WORKSPACE": str(self.root),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_SHA": merge,
            "INPUT_COMMENT": "off",
            "INPUT_BASELINE-STORE": "file",
        }
        clean = {name: value for name, value in os.environ.items() if name in kept}
        done = agent_eval("run", cwd=self.root, env={**clean, **job, **more})
        out = self.root / ".agent-eval" / "out" / "results.json"
        return done.returncode, json.loads(out.read_text()) if out.is_file() else {}, done.stdout + done.stderr

    def agents(self, **more: str) -> list[str]:
        """The agents that were run."""
        code, results, log = self.run(**more)
        assert code == 0, log
        return sorted({one["agent"] for one in results["sets"]})


@pytest.fixture
def repo(tmp_path: Path) -> Monorepo:
    return Monorepo(tmp_path)


def test_a_change_of_nothing_relevant_passes_at_once_and_says_so(repo: Monorepo) -> None:
    repo.change("docs/index.md")
    code, results, log = repo.run()
    assert (code, results["sets"], results["decision"]["outcome"]) == (0, [], "pass"), log
    assert NOTHING in headline(results["decision"])
    assert "booking, support" in headline(results["decision"])
    assert "none of 1 changed file" in headline(results["decision"])
    output = repo.output.read_text()
    assert "verdict<<" in output
    assert NOTHING in output
    out = repo.root / ".agent-eval" / "out"
    assert NOTHING in (out / "comment.md").read_text().lower()
    assert (out / "junit.xml").is_file()
    assert results["conditions"]["change"] == repo.head


def test_the_comment_of_an_earlier_run_is_updated(repo: Monorepo, server: Any) -> None:
    job = {"INPUT_COMMENT": "update", "INPUT_GITHUB-TOKEN": server.token, "GITHUB_WORKFLOW": "Evals", **server.environ}
    side = {"sha": repo.base, "ref": "main", "repo": {"id": 1}}
    server.put(repo="octo-org/Hello-World", pulls=[{"number": 2, "state": "open", "head": side, "base": side}])
    repo.change("agents/booking/agent.py")
    assert repo.run(**job, GITHUB_RUN_NUMBER="1", GITHUB_RUN_ID="1")[0] == 0
    shutil.rmtree(repo.root / ".agent-eval")
    repo.git("checkout", "-qf", "main")
    repo.git("branch", "-D", "change")
    repo.change("docs/index.md")
    code, _, log = repo.run(**job, GITHUB_RUN_NUMBER="2", GITHUB_RUN_ID="2")
    assert code == 0, log
    bodies = [one["body"] for one in server.comments(2, "octo-org/Hello-World")]
    assert len(bodies) == 1
    assert NOTHING in bodies[0].lower()


@pytest.mark.exhaustive(after=7)
@pytest.mark.parametrize(
    ("path", "run"),
    [
        ("agents/booking/agent.py", ["booking"]),
        ("agents/support/prompts/new.md", ["support"]),
        ("libs/shared/words.py", ["booking"]),
        ("agents/booking/evals/test_config.json", ["booking"]),
        ("requirements.txt", ["booking", "support"]),
        ("agents/uv.lock", ["booking", "support"]),
        ("uv.toml", ["booking", "support"]),
        ("agents/support/constraints.txt", ["support"]),
        ("libs/installed/setup.cfg", ["support"]),
        ("agents/support/pyproject.toml", ["support"]),
        (".github/workflows/evals.yml", ["booking", "support"]),
        (".agent-eval/accept.yaml", ["booking", "support"]),
        ("elsewhere/new.test.json", ["booking", "support"]),
    ],
)
def test_what_counts(repo: Monorepo, path: str, run: list[str]) -> None:
    text = {
        "agents/booking/evals/test_config.json": json.dumps({"criteria": {"response_match_score": 0.9}}),
        ".agent-eval/accept.yaml": "[]\n",
        "elsewhere/new.test.json": "[]",
    }
    repo.change(path, text.get(path, "# changed\n"))
    if path.startswith("elsewhere"):
        (repo.root / path).unlink()  # an eval file nobody owns is an error of its own
    _, results, log = repo.run()
    assert sorted({one["agent"] for one in results.get("sets", ())}) == run, log


def test_an_eval_file_that_is_removed_counts(repo: Monorepo) -> None:
    repo.write("agents/booking/evals/more.evalset.json", json.dumps({"eval_set_id": "m", "eval_cases": [case("a")]}))
    repo.base = repo.commit()
    repo.change("agents/booking/evals/more.evalset.json", None)
    assert repo.agents() == ["booking", "support"]


def test_what_was_merged_meanwhile_is_no_part_of_the_change(repo: Monorepo) -> None:
    """main went on in booking's folder; the event's base is older than that."""
    repo.change("agents/support/agent.py", "root_agent = None  # changed\n")
    assert repo.agents() == ["support"]


def test_an_agent_that_does_not_say_is_always_run(repo: Monorepo) -> None:
    repo.configure(booking=None, support=[])
    repo.base = repo.commit()
    repo.change("docs/index.md")
    assert repo.agents() == ["booking"]


def test_a_queue_is_filtered_too_and_a_push_is_not(repo: Monorepo) -> None:
    repo.change("docs/index.md")
    assert repo.agents(event="merge_group") == []
    assert repo.agents(event="push") == ["booking", "support"]
    assert repo.agents(event="schedule") == ["booking", "support"]


def test_in_a_shallow_clone_without_its_base_nothing_is_decided(repo: Monorepo) -> None:
    repo.change("docs/index.md")
    shallow = repo.root.parent / "shallow"
    repo.git("branch", "merged")
    subprocess.run(["git", "clone", "-q", "--depth=1", "--branch=merged", repo.root.as_uri(), str(shallow)], check=True)
    repo.root = shallow
    repo.git("remote", "set-url", "origin", "file:///nowhere")
    code, results, log = repo.run()
    assert (code, results["sets"]) == (3, []), log
    assert results["decision"]["outcome"] == "inconclusive"
    assert "the rules of the base commit hold for a change, and cannot be read" in headline(results["decision"])
    assert "fetch-depth: 2" in headline(results["decision"])


def test_patterns_are_globs_and_start_from_the_configuration(repo: Monorepo) -> None:
    repo.configure(booking=["docs/**/*.md"], support=["libs/*.py"])
    repo.base = repo.commit()
    repo.change("docs/index.md")
    assert repo.agents() == ["booking"]


def test_everything_runs_where_the_base_commit_is_a_guess(repo: Monorepo) -> None:
    """What is checked out is neither the head nor its merge: the event's base may be older than what it is put upon."""
    repo.change("docs/index.md")
    repo.head = repo.base
    code, results, log = repo.run()
    assert (code, len(results["sets"])) == (0, 2), log
    assert "what this change touches is not known" in " ".join(log.split())


def test_the_base_checked_out_is_no_change_of_nothing(repo: Monorepo) -> None:
    """pull_request_target's default: nothing differs from itself, which says nothing of the pull request."""
    repo.change("docs/index.md")
    repo.git("checkout", "-q", repo.base)
    allowed = {"INPUT_ALLOW-PULL-REQUEST-TARGET": "true"}
    assert repo.agents(event="pull_request_target", **allowed) == ["booking", "support"]


@pytest.mark.parametrize("path", ["suites/booking/test_config.json", "rules/strict.json"])
def test_what_lies_beside_eval_files_and_what_the_configuration_names_counts(repo: Monorepo, path: str) -> None:
    text = json.dumps({"criteria": {"response_match_score": 0.8}})
    repo.git("mv", "agents/booking/evals", "suites")
    (repo.root / "suites").rename(repo.root / "moved")
    (repo.root / "suites").mkdir()
    (repo.root / "moved").rename(repo.root / "suites" / "booking")
    repo.write("rules/strict.json", text)
    config = json.loads((repo.root / "agent-eval.yaml").read_text())
    config["agents"][0] |= {"evals": "suites/booking", "paths": []}
    config["agents"][1] |= {"criteria": "rules/strict.json"}
    repo.write("agent-eval.yaml", json.dumps(config))
    line = json.loads((repo.root / "agents/booking/recording/attempts.jsonl").read_text())
    repo.write("agents/booking/recording/attempts.jsonl", json.dumps({**line, "eval_set": "suites/booking/s"}) + "\n")
    repo.base = repo.commit()
    repo.change(path, text.replace("0.8", "0.7"))
    _, results, log = repo.run()
    run = sorted({one["agent"] for one in results.get("sets", ())})
    assert run == (["booking"] if path.startswith("suites") else ["booking", "support"]), log


def test_a_criterion_that_is_not_measured_here_is_not_taken_for_one_that_was_dropped(repo: Monorepo) -> None:
    criteria = {"criteria": {"response_match_score": 0.8, "final_response_match_v2": 0.8}}
    repo.write("agents/booking/evals/test_config.json", json.dumps(criteria))
    repo.base = repo.commit()
    repo.change("agents/booking/agent.py")
    code, results, log = repo.run()
    assert (code, results["decision"]["outcome"]) == (3, "inconclusive"), log
    assert results["decision"]["weakenings"] == []
    assert "not measured: no credentials" in headline(results["decision"])


@pytest.mark.parametrize(
    ("link", "target", "changed"),
    [
        ("agents/support/words.md", "docs/index.md", "docs/index.md"),
        ("agents/support/texts", "docs", "docs/new.md"),
        ("libs/shared", "libs/impl", "libs/impl/words.py"),
    ],
)
def test_what_a_link_leads_to_counts_as_the_link_does(repo: Monorepo, link: str, target: str, changed: str) -> None:
    if link == "libs/shared":
        repo.git("mv", "libs/shared", "libs/impl")
    place = repo.root / link
    place.symlink_to(os.path.relpath(repo.root / target, place.parent))
    repo.base = repo.commit()
    repo.change(changed)
    assert repo.agents() == (["booking"] if link == "libs/shared" else ["support"])


def test_a_submodule_counts_for_every_agent_since_nothing_names_what_changed_in_it(repo: Monorepo) -> None:
    source = repo.root.parent / "words"
    source.mkdir()

    def in_words(*words: str) -> str:
        return repo.git("-C", str(source), *words)

    def commit() -> None:
        in_words("add", "-A")
        in_words("commit", "-qm", "x")

    in_words("init", "-qb", "main")
    (source / "words.py").write_text("")
    commit()
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source), "libs/all")
    repo.git("config", "submodule.recurse", "true")  # each checkout has the files of its own commit
    repo.configure(booking=["**/words.py"], support=[])
    repo.base = repo.commit()
    (repo.root / "libs" / "all" / "words.py").write_text("changed")
    repo.git("-C", "libs/all", "commit", "-qam", "x")
    repo.change("docs/index.md")
    assert repo.agents() == ["booking", "support"]
