"""Datasets and metrics of agents-cli as agents-cli 1.11 itself reads them, run live."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_eval_action import criteria
from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria.base import Sample
from agent_eval_action.criteria.vertex import instance_of
from agent_eval_action.errors import AgentEvalError, EvalFileError
from agent_eval_action.formats import load_eval_file
from agent_eval_action.llm.providers.google import PREDEFINED, _case_instance
from agent_eval_action.results.evalset import Content, DatasetCase, Invocation, InvocationEvent, InvocationEvents
from support import adk_program

pytestmark = pytest.mark.exhaustive  # importing agents-cli takes ten seconds; its answers stand in the samples
PROGRAM = Path(__file__).with_name("agents_cli_oracle.py")
WORKER = Path(__file__).parents[2] / "src" / "agent_eval_action" / "worker"
SAMPLES = Path(__file__).parents[1] / "formats" / "samples" / "agents_cli"


@pytest.fixture(scope="module")
def oracle(agents_cli_python: Path) -> Iterator[adk_program.Ask]:
    with adk_program.running(agents_cli_python, PROGRAM) as ask:
        yield ask


def load(text: str, tmp_path: Path) -> tuple[DatasetCase, ...] | EvalFileError:
    path = tmp_path / "x-dataset.json"
    path.write_text(text)
    try:
        cases = load_eval_file(path, workspace=tmp_path).eval_set.eval_cases
    except EvalFileError as error:
        return error
    return tuple(case for case in cases if isinstance(case, DatasetCase))


def without_nulls(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True)


def compare_reading(text: str, oracle: adk_program.Ask, tmp_path: Path) -> int:
    """How many cases both read with the same history and message."""
    theirs, ours = oracle({"action": "load", "text": text}), load(text, tmp_path)
    if "refused" in theirs:
        assert isinstance(ours, EvalFileError)
        return 0
    asked = [case for case in theirs["value"] if "error" not in case]
    if isinstance(ours, EvalFileError):
        assert len(asked) < len(theirs["value"]), ours
        return 0
    ours_asked = [case for case in ours if not case.recorded]
    assert len(ours_asked) == len(asked)
    for case, expected in zip(ours_asked, asked, strict=True):
        (turn,) = case.turns
        assert without_nulls(turn.user_content) == expected["message"]
        history = [without_nulls(event) for event in case.history]
        for event in history:
            event["author"] = "root" if event["author"] == "model" else event["author"]
        assert history == expected["history"]
    return len(asked)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*-dataset.json")), ids=lambda path: path.stem)
def test_the_samples_are_sent_as_agents_cli_sends_them(path, oracle, tmp_path):
    text = path.read_text()
    assert compare_reading(text, oracle, tmp_path) or "wrong" in path.name or "trace" in path.name


def test_public_datasets_are_sent_as_agents_cli_sends_them(corpus, oracle, tmp_path):
    index = json.loads((corpus / "INDEX.json").read_text())
    files = [entry["local"] for entry in index if entry["format"].startswith("agents-cli EvaluationDataset")]
    assert sum(compare_reading((corpus / name).read_text(), oracle, tmp_path) for name in files) >= 10


SAID = {"parts": [{"text": "0"}]}
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
parts = st.one_of(
    st.fixed_dictionaries({"text": texts}),
    st.fixed_dictionaries({"function_call": st.fixed_dictionaries({"name": texts, "args": st.just({"a": 1})})}),
    st.fixed_dictionaries({"function_response": st.fixed_dictionaries({"name": texts, "response": st.just({"b": 2})})}),
)
contents = st.fixed_dictionaries({"parts": st.lists(parts, min_size=1, max_size=2)}, optional={"role": st.just("user")})
events = st.fixed_dictionaries(
    {"author": st.sampled_from(["user", "model", "desk", "tool"])},
    optional={"content": contents, "state_delta": st.just({"price": 1})},
)
turns = st.lists(st.fixed_dictionaries({"events": st.lists(events, min_size=1, max_size=3)}), max_size=3)
cases = st.fixed_dictionaries(
    {},
    optional={
        "eval_case_id": texts.map(lambda text: f"id-{text}"),
        "prompt": contents,
        "agent_data": st.fixed_dictionaries({"turns": turns}),
        "reference": st.fixed_dictionaries({"response": contents}),
        "context": texts,
        "difficulty": st.integers(0, 3),
    },
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases)
@example(case={"agent_data": {"turns": [{"events": [{"author": "user"}, {"author": "user", "content": SAID}]}]}})
def test_random_cases_are_sent_as_agents_cli_sends_them(case, oracle, tmp_path):
    compare_reading(json.dumps({"eval_cases": [case]}), oracle, tmp_path)


def made(events_made: list[dict[str, Any]]) -> Invocation:
    """A turn of the agent as our worker reports these events: the last one is the answer."""
    *before, last = events_made
    return Invocation(
        user_content=Content(),
        final_response=Content.model_validate(last["content"]),
        intermediate_data=InvocationEvents(
            invocation_events=tuple(InvocationEvent.model_validate(event) for event in before)
        ),
    )


MADE = [
    {"author": "agent", "content": {"role": "model", "parts": [{"function_call": {"name": "find", "args": {"q": 1}}}]}},
    {
        "author": "agent",
        "content": {"role": "user", "parts": [{"function_response": {"name": "find", "response": {}}}]},
    },
    {"author": "agent", "content": {"role": "model", "parts": [{"text": "In Main Street."}]}},
]


@pytest.mark.parametrize("name", ["prompts-dataset.json", "conversation-dataset.json"])
def test_a_metric_gets_the_instance_that_agents_cli_gives_it(name, oracle, tmp_path):
    text = (SAMPLES / name).read_text()
    loaded = load(text, tmp_path)
    assert not isinstance(loaded, EvalFileError)
    expected = oracle({"action": "instance", "text": text, "events": MADE})["value"]["instance"]
    assert instance_of(Sample(loaded[0], (made(MADE),))) == expected


@pytest.mark.parametrize(
    ("metric", "parameters"),
    [
        ("final_response_quality_v2", {"rubric_group_key": "tone"}),
        ("multi_turn_task_success_v1", None),
        ("grounding_v2", None),
    ],
)
def test_vertex_ai_gets_the_instance_that_agents_cli_sends(metric, parameters, oracle, tmp_path):
    text = (SAMPLES / "prompts-dataset.json").read_text()
    loaded = load(text, tmp_path)
    assert not isinstance(loaded, EvalFileError)
    asked = {"action": "managed", "text": text, "events": MADE, "metric": metric, "parameters": parameters}
    expected = oracle(asked)["value"]
    assert expected["metrics"][0]["predefined_metric_spec"]["metric_spec_name"] == metric
    assert _case_instance(instance_of(Sample(loaded[0], (made(MADE),)))) == expected["instance"]


def test_the_metrics_of_vertex_ai_are_those_of_the_sdk(oracle):
    ours = {f"{name}_v{version}" for name, versions in PREDEFINED.items() for version in versions}
    theirs = {name for name in oracle({"action": "predefined"})["value"]["names"] if not name.startswith("gecko")}
    assert ours == theirs


CONFIGS = {
    "functions": "metrics_to_run: [a, B]\ncustom_metrics:\n- {name: a, custom_function_file: a.py}\n"
    "- name: B\n  custom_function: |\n    def evaluate(instance):\n        return 1\n",
    "remote": "metrics_to_run: [a]\ncustom_metrics:\n"
    "- name: a\n  execution: remote\n  custom_function: |\n    def evaluate(instance):\n        return 1\n",
    "prompt": "metrics_to_run: [a]\ncustom_metrics:\n"
    "- {name: a, prompt_template: 'rate {response}', judge_model: gemini-2.5-flash, judge_model_sampling_count: 3}\n",
    "built_in": "metrics_to_run: [FINAL_RESPONSE_QUALITY, multi_turn_task_success, exact_match, bleu, rouge_1]\n",
    "parameters": "metrics_to_run: [tool_use_quality]\ncustom_metrics:\n"
    "- {name: tool_use_quality, metric_spec_parameters: {rubric_group_key: g}}\n",
    "other_entry": "metrics_to_run: [exact_match]\ncustom_metrics:\n- {name: unused, prompt_template: x}\n",
    "wrong_nothing": "custom_metrics: []\nmetrics_to_run: []\n",
    "wrong_list": "metrics_to_run: exact_match\n",
    "wrong_group": "metrics_to_run: [a]\ncustom_metrics:\n- {name: a, prompt_template: x, rubric_group_name: g}\n",
    "wrong_both": "metrics_to_run: [a]\ncustom_metrics:\n"
    "- {name: a, custom_function: 'x=1', custom_function_file: a.py}\n",
    "wrong_reserved": "metrics_to_run: [safety_v1]\ncustom_metrics:\n- {name: safety_v1, prompt_template: x}\n",
    "wrong_empty_entry": "metrics_to_run: [a]\ncustom_metrics:\n- {name: a}\n",
    "wrong_file": "metrics_to_run: [a]\ncustom_metrics:\n- {name: a, custom_function_file: nowhere.py}\n",
    "wrong_syntax": "metrics_to_run: [a]\ncustom_metrics:\n- {name: a, custom_function: 'def evaluate('}\n",
    "wrong_execution": "metrics_to_run: [a]\ncustom_metrics:\n"
    "- {name: a, custom_function_file: a.py, execution: there}\n",
    "wrong_count": "metrics_to_run: [a]\ncustom_metrics:\n"
    "- {name: a, prompt_template: x, judge_model_sampling_count: 33}\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_read_or_refused_as_agents_cli_does(name, oracle, tmp_path):
    path = tmp_path / "eval_config.yaml"
    path.write_text(CONFIGS[name])
    (tmp_path / "a.py").write_text("def evaluate(instance):\n    return {'score': 1}\n")
    theirs = oracle({"action": "config", "path": str(path)})["value"]
    assert ("error" in theirs) is name.startswith("wrong"), theirs
    if "error" in theirs:
        with pytest.raises(AgentEvalError):
            criteria.build(load_criteria_file(path, workspace=tmp_path).specs)
        return
    ours = [criterion.name for criterion in criteria.build(load_criteria_file(path, workspace=tmp_path).specs)]
    assert len(ours) == len(theirs["names"])
    for mine, other in zip(ours, theirs["names"], strict=True):
        assert other == mine or other.lower().removesuffix("_v1").removesuffix("_v2") == mine


@pytest.mark.parametrize("error", ["connection", "timeout", "value"])
@pytest.mark.parametrize("code", [None, 400, 408, 429, 500, 503])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_same_errors_are_tried_again(error, code, wrapped, oracle, monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER))
    is_transient = importlib.import_module("agent_eval_worker_metrics").is_transient
    kinds = {"connection": ConnectionError, "timeout": TimeoutError, "value": ValueError}
    mine: Exception = kinds[error]()
    if code is not None:
        mine.code = code  # type: ignore[attr-defined]  # as google-genai's errors have one
    if wrapped:
        outer = RuntimeError("outer")
        outer.__context__ = mine
        mine = outer
    asked = {"action": "transient", "error": error, "wrapped": wrapped, **({"code": code} if code else {})}
    assert is_transient(mine) == oracle(asked)["value"]
