"""Pull requests that would pass by changing what judges them, in the container: each is red or inconclusive, and why.

One small repository with recorded scores on its main. An attack is a change of it that makes the agent worse and hides
that, or code that is broken, or a service that does not answer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from support.judge_model import JudgeModel
from support.messages import headline, sentence
from support.model_server.server import Seen, at_once
from support.openai_server.faults import Fault
from support.openai_server.server import OpenAiServer
from support.repositories import run_git
from support.serving import listening

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

PAYLOADS = Path(__file__).resolve().parents[1] / "support" / "github_events"
KEY = "sk-of-the-judge"
MATCHED, JUDGED = "response_match_score", "final_response_match_v2"
RUNNER_KILLS_AFTER_S = 10  # from its first signal on
AGENT = '''
import os

from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

GOOD = True


def look_up(number: int) -> dict:
    """Look a number up."""
    return {"word": "seventeen"}


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        newest = llm_request.contents[-1].parts[0]
        if newest.function_response:
            part = types.Part(text=newest.function_response.response["word"] if GOOD else "no idea")
        elif "second" in newest.text:
            part = types.Part(function_call=types.FunctionCall(name="look_up", args={"number": 17}))
        else:
            part = types.Part(text="seventeen")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


root_agent = Agent(name="bot", model=Scripted(model="scripted"), tools=[look_up])
'''
METRICS = """
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult


def tone(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    text = actual_invocations[-1].final_response.parts[0].text
    return EvaluationResult(overall_score=float("seventeen" in text), overall_eval_status=EvalStatus.PASSED)
"""


def case(name: str, asked: str, app: str) -> dict[str, Any]:
    turn = {
        "user_content": {"parts": [{"text": asked}]},
        "final_response": {"role": "model", "parts": [{"text": "seventeen"}]},
    }
    return {"eval_id": name, "conversation": [turn], "session_input": {"app_name": app, "user_id": "u"}}


@dataclass
class Checkout:
    """The files of the repository, and its judge's address."""

    root: Path
    judge: str = ""

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text, name
        self.write(name, text.replace(old, new))

    def suite(self, agent: str = "bot", file: str = "evals/s", names: tuple[str, str] = ("one", "two")) -> None:
        cases = [case(name, f"the {nth}", agent) for name, nth in zip(names, ("first", "second"), strict=True)]
        self.write(f"{file}.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": cases}))

    def configure(self, **options: Any) -> None:
        """More options of the configuration file; those of ``agent`` are added to what it says there."""
        path = self.root / "agent-eval.yaml"
        config = json.loads(path.read_text()) if path.exists() else {"agent": {"path": "bot", "evals": "evals"}}
        agent = {**config["agent"], **options.pop("agent", {})}
        path.write_text(json.dumps({**config, **options, "agent": agent}))

    def criteria(self, criteria: dict[str, Any], **beside: Any) -> None:
        """More criteria, and what stands beside them in their file."""
        path = self.root / "evals" / "test_config.json"
        config = json.loads(path.read_text()) if path.exists() else {"criteria": {}}
        self.write("evals/test_config.json", json.dumps({"criteria": {**config["criteria"], **criteria}, **beside}))

    def judged(self, model: str, samples: int) -> None:
        options = {"judge_model": model, "num_samples": samples}
        self.criteria({JUDGED: {"threshold": 0.8, "judge_model_options": options}})

    def git(self, *words: str) -> str:
        return run_git(self.root, "-c", "safe.directory=*", *words)

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD")


# What main has beside the agent, its two cases, and their recorded scores.


def as_recorded(_: Checkout) -> None:
    pass


def with_a_metric(main: Checkout) -> None:
    main.write("bot/metrics.py", METRICS)
    main.criteria({"tone": 0.5}, custom_metrics={"tone": {"code_config": {"name": "bot.metrics.tone"}}})


def with_a_judge(main: Checkout) -> None:
    main.judged("openai/judge", 3)
    main.configure(llm={"openai_base_url": f"{main.judge}/v1"})


def with_a_judge_and_a_metric(main: Checkout) -> None:
    with_a_judge(main)
    with_a_metric(main)


def without_configuration(main: Checkout) -> None:
    (main.root / "agent-eval.yaml").unlink()
    shutil.rmtree(main.root / ".agent-eval")


# What a change does.


def worse(change: Checkout) -> None:
    change.edit("bot/agent.py", "GOOD = True", "GOOD = False")


def worse_under_other_names(change: Checkout) -> None:
    worse(change)
    (change.root / "bot").rename(change.root / "assistant")
    (change.root / "evals" / "s.evalset.json").unlink()
    change.suite("assistant", "evals/other", ("three", "four"))
    change.configure(agent={"path": "assistant"})


def worse_with_a_recording(change: Checkout) -> None:
    worse(change)
    turn = case("two", "the second", "bot")["conversation"][0]
    lines = [
        {"agent": "bot", "eval_set": "evals/s", "case": name, "repeat": 0, "case_digest": "x", "turns": [turn]}
        for name in ("one", "two")
    ]
    change.write("good/attempts.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    change.configure(recording="good")


def worse_beside_a_copy_of_the_old_agent(change: Checkout) -> None:
    shutil.copytree(change.root / "bot", change.root / "old" / "bot")
    worse(change)
    change.configure(agent={"path": "old/bot"})


def worse_where_no_variable_is_set(change: Checkout) -> None:
    change.edit("bot/agent.py", "GOOD = True", 'GOOD = "BE_GOOD" in os.environ')
    change.configure(agent={"env": {"BE_GOOD": "yes"}})


def worse_with_a_metric_that_always_passes(change: Checkout) -> None:
    worse(change)
    change.edit("bot/metrics.py", 'float("seventeen" in text)', "1.0")


def with_committed_answers_of_judges(change: Checkout) -> None:
    change.write(".agent-eval/cache/llm/answers.jsonl", "{}\n")
    change.git("add", "--force", ".agent-eval/cache/llm")


def worse_with_permissive_rules(change: Checkout) -> None:
    worse(change)
    change.configure(gate={"threshold_on": "off", "fail_on": "never", "max_drop": 1.0})


def without_a_key_where_it_got_worse(change: Checkout) -> None:
    change.edit(
        "bot/agent.py", '    return {"word"', '    raise ValueError("No API key was provided")\n    return {"word"'
    )


def with_a_tool_that_raises(change: Checkout) -> None:
    change.edit("bot/agent.py", '    return {"word"', '    raise ZeroDivisionError("always")\n    return {"word"')


def at_the_top(text: str) -> Callable[[Checkout], None]:
    def change(files: Checkout) -> None:
        files.write("bot/agent.py", text + AGENT)

    return change


@dataclass(frozen=True)
class Attack:
    """A change of main, and how the step ends.

    ``words`` are said by the verdict's reason or by what the change does to the gate; where nothing was run, by the
    error. ``scores`` are by case and criterion, of the first attempt.
    """

    change: Callable[[Checkout], None]
    code: int
    words: tuple[str, ...]
    main: Callable[[Checkout], None] = as_recorded
    scores: dict[tuple[str, str], float] = field(default_factory=dict)
    event: str = "pull_request"
    inputs: dict[str, str] = field(default_factory=dict)


LENIENT = {"INPUT_FAIL-ON": "fail"}
ANSWERED = "main's agent answers this without credentials"
ATTACKS = {
    "eval file, cases and agent are renamed": Attack(
        worse_under_other_names,
        1,
        ("1 of 2 cases got worse: `four`",),
        scores={("three", MATCHED): 1.0, ("four", MATCHED): 0.0},
    ),
    "a recording stands in for the agent": Attack(
        worse_with_a_recording, 2, ("a recording is no answer of the agent to be merged",)
    ),
    "a copy of the old agent is evaluated": Attack(
        worse_beside_a_copy_of_the_old_agent,
        1,
        ("on_weakened: fail blocks that", "its folder is now `old/bot` (was `bot`)"),
        scores={("two", MATCHED): 1.0},
    ),
    "a variable makes only the evaluation good": Attack(
        worse_where_no_variable_is_set,
        1,
        ("on_weakened: fail blocks that", "its variable `BE_GOOD` is now `yes` (was not set)"),
        scores={("two", MATCHED): 1.0},
    ),
    "the body of a metric is edited": Attack(
        worse_with_a_metric_that_always_passes,
        1,
        ("the metric function `bot.metrics.tone` (bot/metrics.py) was edited",),
        main=with_a_metric,
        scores={("one", "tone"): 1.0, ("two", "tone"): 0.0},
    ),
    "answers of judges are committed": Attack(with_committed_answers_of_judges, 2, (".agent-eval/cache",)),
    "permissive rules where main has none": Attack(
        worse_with_permissive_rules,
        1,
        (
            "1 of 2 cases misses a threshold: `two`",
            "gate.max_drop 0.05 → 1",
            "gate.fail_on inconclusive → never",
            "gate.threshold_on regression → off",
        ),
        main=without_configuration,
    ),
    "a fork's agent lacks a key for what got worse": Attack(
        without_a_key_where_it_got_worse, 1, (ANSWERED,), event="pull_request_fork"
    ),
    "Dependabot's agent lacks a key to start": Attack(
        at_the_top('raise ValueError("No API key was provided")\n'), 1, (ANSWERED,), event="pull_request_dependabot"
    ),
    "a syntax error": Attack(
        at_the_top("root = (\n"),
        1,
        ("the agent `bot` does not start: SyntaxError: '(' was never closed (agent.py, line 1)",),
        inputs=LENIENT,
    ),
    "an import error": Attack(
        at_the_top("import a_package_nobody_has\n"),
        1,
        ("the agent `bot` does not start: ModuleNotFoundError: No module named 'a_package_nobody_has'",),
        inputs=LENIENT,
    ),
    "an agent that ends its process": Attack(
        at_the_top("import os\nos._exit(3)\n"),
        1,
        ("the agent `bot` does not start: ", "exit code 3 while it imported the agent"),
        inputs=LENIENT,
    ),
    "a tool that always raises": Attack(
        with_a_tool_that_raises,
        1,
        ("`two` fails with an error of the agent's code", "ZeroDivisionError: always"),
        inputs=LENIENT,
    ),
}


@dataclass
class Repository:
    """The checkout, its recorded main, and the job that is started on a merge of a change with it."""

    files: Checkout
    job: Any
    recorded: str = ""
    base: str = ""

    def begin(self, main: Callable[[Checkout], None], temp: Path) -> None:
        """Put main there, with this beside what is recorded; of earlier jobs only the environments are kept."""
        self.job = replace(self.job, temp=temp, environ={})
        files = self.files
        files.git("checkout", "--quiet", "--force", "--detach", self.recorded)
        files.git("clean", "-ffdxq", "--exclude=/.agent-eval/cache/environments")
        main(files)
        self.base = files.commit()

    def merge(self, change: Callable[[Checkout], None], event: str = "pull_request") -> None:
        """Check out GitHub's merge commit of main and the change, and write the event."""
        files = self.files
        change(files)
        head = files.commit()
        files.git("checkout", "--quiet", "--detach", self.base)
        files.git("merge", "--quiet", "--no-ff", "-m", "merge", head)
        payload = json.loads((PAYLOADS / f"{event}.json").read_text())
        payload["pull_request"]["base"]["sha"], payload["pull_request"]["head"]["sha"] = self.base, head
        (self.job.temp / "_github_workflow").mkdir(parents=True)
        (self.job.temp / "_github_workflow" / "event.json").write_text(json.dumps(payload))
        self.job.environ.update(
            {
                "GITHUB_EVENT_NAME": "pull_request",
                "GITHUB_REF": "refs/pull/2/merge",
                "GITHUB_BASE_REF": "main",
                "GITHUB_REPOSITORY": "octo-org/Hello-World",
                "GITHUB_ACTOR": payload["sender"]["login"],
                "INPUT_BASELINE-STORE": "file",
                "INPUT_COMMENT": "off",
            }
        )

    def with_credentials(self) -> None:
        self.job.environ.update(
            {
                "OPENAI_API_KEY": KEY,
                "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1",
                "RUNNER_JOB_ENV": "OPENAI_API_KEY NO_PROXY no_proxy",
            }
        )

    def run(self) -> tuple[int, dict[str, Any], str]:
        """Exit code, results.json ({} where there is none), and all that was printed."""
        done = self.job.run()
        file = self.job.out / "results.json"
        printed = done.stdout + done.stderr
        assert "Traceback" not in printed
        return done.returncode, json.loads(file.read_text()) if file.exists() else {}, printed


@pytest.fixture(scope="module")
def judge() -> Iterator[OpenAiServer]:
    """The judge, which says yes to everything."""
    server = OpenAiServer(JudgeModel(agent=lambda _: None).openai)
    with listening(server.handle) as server.url:
        yield server


@pytest.fixture(scope="module")
def recorded(kit: Any, engine: Any, image: str, judge: OpenAiServer, tmp_path_factory: Any) -> Repository:
    """main with its agent, its rules, and scores that were measured and committed."""
    folder = tmp_path_factory.mktemp("attacks")
    files = Checkout(folder / "ws", judge.url)
    files.write(".gitignore", ".agent-eval/out\n.agent-eval/cache\n")
    files.write("requirements.txt", (kit.ROOT / "examples" / "dice" / "requirements.txt").read_text())
    files.write("bot/__init__.py", "from . import agent\n")
    files.write("bot/agent.py", AGENT)
    files.suite()
    files.criteria({MATCHED: 0.8})
    files.configure(strict=True, workers=1)
    kit.check_out(files.root)
    job = kit.Job(replace(engine, options=("--network=host",)), image, files.root, folder / "temp", {})
    done = job.run("baseline", "update", "--repeats", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return Repository(files, job, recorded=files.commit())


@pytest.fixture
def repository(recorded: Repository, judge: OpenAiServer, tmp_path: Path) -> Repository:
    """The repository as it was recorded, for the next job."""
    judge.faults.clear()
    judge.hold = at_once
    judge.seen = Seen()
    recorded.begin(as_recorded, tmp_path / "temp")
    return recorded


def nothing(change: Checkout) -> None:
    change.write("README.md", "hello\n")


def statements(results: dict[str, Any]) -> str:
    """The reason of the verdict, and what the change does to the gate."""
    decision = results["decision"]
    return "\n".join([headline(decision), *map(sentence, decision["weakenings"])])


def first_scores(results: dict[str, Any]) -> dict[tuple[str, str], float]:
    """By case and criterion, of the first attempts."""
    cases = [case for measured in results["sets"] for case in measured["cases"] if case["attempts"]]
    return {
        (case["case"], score["criterion"]): score["score"] for case in cases for score in case["attempts"][0]["scores"]
    }


def test_a_change_of_nothing_passes(repository: Repository, tmp_path: Path) -> None:
    """So what is red below is red for its attack."""
    repository.begin(with_a_judge_and_a_metric, tmp_path / "temp")
    repository.merge(nothing)
    repository.with_credentials()
    code, results, printed = repository.run()
    assert (code, results["decision"]["outcome"], results["decision"]["weakenings"]) == (0, "pass", []), printed
    assert set(first_scores(results)) == {(name, one) for name in ("one", "two") for one in (MATCHED, JUDGED, "tone")}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack(repository: Repository, attack: Attack, tmp_path: Path) -> None:
    repository.begin(attack.main, tmp_path / "temp")
    repository.merge(attack.change, attack.event)
    repository.job.environ.update(attack.inputs)
    code, results, printed = repository.run()
    assert (code, bool(results)) == (attack.code, attack.code != 2), printed
    stated = statements(results) if results else " ".join(printed.split())
    for words in attack.words:
        assert words in stated, printed
    if results:
        assert (results["decision"]["outcome"], results["decision"]["excused"]) == ("fail", False)
        found = first_scores(results)
        assert {pair: found.get(pair) for pair in attack.scores} == attack.scores, printed


def test_a_judge_that_the_change_names_is_not_asked(
    repository: Repository, judge: OpenAiServer, tmp_path: Path
) -> None:
    """Another model, fewer samples, and an address of the change's, where main's key would be sent."""
    repository.begin(with_a_judge, tmp_path / "temp")
    elsewhere = OpenAiServer(judge.answer)
    with listening(elsewhere.handle) as url:

        def change(files: Checkout) -> None:
            files.judged("openai/always-yes", 1)
            files.configure(llm={"openai_base_url": f"{url}/v1"})

        repository.merge(change)
        repository.with_credentials()
        code, results, printed = repository.run()
    assert code == 1, printed
    stated = statements(results)
    for words in (
        "num_samples 3 → 1",
        "judge_model openai/judge → openai/always-yes",
        f"llm.openai_base_url {judge.url}/v1 → {url}/v1",
    ):
        assert words in stated, printed
    assert (elsewhere.seen.calls, elsewhere.seen.unexpected) == (0, [])
    assert {asked["body"]["model"] for asked in judge.seen.requests} == {"judge"}
    assert [asked["body"]["n"] for asked in judge.seen.requests] == [2, 2], "of three samples two agree, in both cases"


def test_a_base_that_cannot_be_fetched_is_inconclusive(repository: Repository, tmp_path: Path) -> None:
    """What `fetch-depth: 1` leaves, where the remote does not answer."""
    repository.merge(worse_with_permissive_rules)
    shallow = Checkout(tmp_path / "shallow")
    repository.files.git("branch", "--force", "merged")
    upload = "--upload-pack=git -c safe.directory=* upload-pack"
    words = ("clone", "--quiet", "--depth=1", "--branch=merged", upload, repository.files.root.as_uri())
    run_git(tmp_path, *words, str(shallow.root))
    shallow.git("remote", "set-url", "origin", "http://127.0.0.1:9/owner/repo.git")
    job = replace(repository.job, workspace=shallow.root)
    code, results, printed = replace(repository, job=job).run()
    assert (code, results["sets"], results["decision"]["outcome"]) == (3, [], "inconclusive"), printed
    assert "the rules of the base commit hold for a change, and cannot be read" in headline(results["decision"])
    assert "fetch-depth: 2" in headline(results["decision"])


def test_a_judge_that_only_refuses_ends_the_run(repository: Repository, judge: OpenAiServer, tmp_path: Path) -> None:
    repository.begin(with_a_judge, tmp_path / "temp")
    repository.merge(nothing)
    repository.with_credentials()
    repository.job.environ.update({"INPUT_STALL-TIMEOUT": "4s", "INPUT_LLM-RETRY-DEADLINE": "1h"})
    judge.faults.append(Fault(code=429))
    code, results, printed = repository.run()
    assert (code, results["decision"]["outcome"]) == (3, "inconclusive"), printed
    assert "nothing was answered for 4 s (stall_timeout)" in headline(results["decision"])
    assert "429" in headline(results["decision"])
    assert "--resume" in printed


def test_the_runners_signal_ends_the_run_with_its_files(
    repository: Repository, judge: OpenAiServer, tmp_path: Path
) -> None:
    """While an agent starts, which is when the end takes longest."""
    repository.begin(with_a_judge, tmp_path / "temp")
    waits = (
        "import time, urllib.request\ntry:\n    urllib.request.urlopen({!r})\nexcept OSError:\n    time.sleep(600)\n"
    )
    repository.merge(at_the_top(waits.format(f"{judge.url}/starting")))
    repository.with_credentials()
    argv, environ = repository.job.command()
    files = [repository.job.out / name for name in ("results.json", "junit.xml", "comment.md", "report.html")]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_for(lambda: "GET /starting" in judge.seen.unexpected or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        wait_for(lambda: all(file.exists() for file in files) or process.poll() is not None)
        took = time.monotonic() - sent
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130, printed
    results = json.loads(files[0].read_text())
    assert (results["status"], results["decision"]["outcome"]) == ("interrupted", "inconclusive"), printed
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # what else this machine does meanwhile
    assert took < RUNNER_KILLS_AFTER_S * crowd, printed


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not happened() and time.monotonic() < until:
        time.sleep(0.05)
    assert happened()
