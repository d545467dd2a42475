"""Metrics of agents-cli's eval_config: the user's functions and prompts, computed metrics, and Vertex AI's."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from agent_eval_action.config.criteria import MetricKind
from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.criteria.judge import (
    Answer,
    JudgedCriterion,
    Question,
    as_json,
    ask_by_template,
    placeholders,
)
from agent_eval_action.criteria.vertex import VertexCriterion
from agent_eval_action.llm.client import LlmError
from agent_eval_action.llm.providers.vertex import predefined_metric
from agent_eval_action.results.evalset import DatasetCase, Invocation, JsonObject
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus

_ANY: Final = (-math.inf, math.inf)


def instance_of(sample: Sample) -> JsonObject:
    """The case and the agent's answers in the form that agents-cli passes to a metric.

    ``response`` is absent if the agent gave no text.
    """
    case = sample.case
    instance: JsonObject = {"eval_case_id": case.eval_id}
    if not (isinstance(case, DatasetCase) and "agent_data" in case.metric_fields):
        instance["prompt"] = sample.actual[0].user_content.wire()
        if reference := case.turns[-1].final_response if case.turns else None:
            instance["reference"] = {"response": reference.wire()}
    if isinstance(case, DatasetCase):
        instance |= case.metric_fields
    if not (isinstance(case, DatasetCase) and case.recorded):
        instance["agent_data"] = _agent_data(instance.get("agent_data") or {}, sample)
    if text := sample.actual[-1].response_text:
        instance["response"] = {"role": "model", "parts": [{"text": text}]}
    return instance


def _agent_data(before: Mapping[str, Any], sample: Sample) -> JsonObject:
    """Append the actual turns to ``before``, the conversation so far; the first continues its last turn."""
    agents = dict(before.get("agents") or {})
    turns = [{**turn, "events": list(turn.get("events") or ())} for turn in before.get("turns") or ()]
    for number, turn in enumerate(sample.actual):
        for name, agent in (turn.app_details.agent_details if turn.app_details else {}).items():
            agents.setdefault(name, {"agent_id": name, "instruction": agent.instructions})
        if number or not turns:
            turns.append({"turn_index": len(turns), "turn_id": f"turn_{len(turns)}", "events": []})
        if len(sample.actual) > 1 and (number or not before):
            turns[-1]["events"].append({"author": "user", "content": turn.user_content.wire()})
        turns[-1]["events"] += _events(turn)
    return {**({"agents": agents} if agents else {}), "turns": turns}


def _events(turn: Invocation) -> list[JsonObject]:
    agent = "agent"
    events: list[JsonObject] = []
    for event in turn.events:
        if event.content is not None:
            events.append({"author": event.author, "content": event.content.wire()})
            agent = event.author if event.author != "user" else agent
    if turn.final_response is not None:
        names = list(turn.app_details.agent_details) if turn.app_details else []
        author = names[0] if len(names) == 1 else agent
        events.append({"author": author, "content": turn.final_response.wire()})
    return events


class EvalMetric(Criterion):
    """A metric of agents-cli. It needs no threshold: its scores are compared with main's."""

    scale: ClassVar[tuple[float, float]] = _ANY
    needs_threshold: ClassVar[bool] = False

    def without_answer(self) -> CriterionScore:
        """An error, since the agent gave no text to score; agents-cli leaves such cases out of its mean."""
        return self.no_score(ScoreStatus.ERROR, "the agent gave no answer with text")


class FunctionMetric(EvalMetric):
    """``custom_function``: ``evaluate(instance)`` returns a number, or ``score`` and ``explanation``; any range."""

    waits: ClassVar[bool] = True

    source: str

    @property
    def function(self) -> str:
        """The function's name in its process."""
        return f"{self.name}-{hashlib.sha256(self.source.encode()).hexdigest()[:8]}"

    def functions(self) -> tuple[str, ...]:
        return (self.function,)

    async def score_case(self, sample: Sample) -> CriterionScore:
        functions, instance = sample.context.functions, instance_of(sample)
        if functions is None:
            return self.no_score(ScoreStatus.ERROR, "this run has no process for metric functions")
        if "response" not in instance:
            return self.without_answer()
        reply = await functions.call(self.function, {"instance": instance}, self.source)
        if reply.error:
            details = {"traceback": reply.traceback} if reply.traceback else {}
            return self.no_score(ScoreStatus.ERROR, reply.error, details=details)
        try:
            score, explanation = float(reply.value["score"]), str(reply.value.get("explanation") or "")
        except (TypeError, ValueError, KeyError, AttributeError):
            return self.no_score(ScoreStatus.ERROR, f"{self.name} gave no score")
        if not math.isfinite(score):
            return self.no_score(ScoreStatus.ERROR, f"{self.name} gave {score}, which is no number")
        return self.result(score, reason=excerpt(explanation, 200) or f"{self.name} gave {score:g}")


class _Grade(Answer):
    explanation: str
    score: float


_TEXTS: Final = ("prompt", "response", "reference", "context", "agent_data")


class PromptMetric(JudgedCriterion, EvalMetric):
    """``prompt_template``: a judge grades with the user's prompt; the score is the mean of its samples."""

    prompt_names: ClassVar[tuple[str, ...]] = ("prompt_template",)

    prompt_template: str
    system_instruction: str = ""

    async def score_case(self, sample: Sample) -> CriterionScore:
        instance = instance_of(sample)
        if "response" not in instance:
            return self.without_answer()
        used = placeholders(self.prompt_template)
        wanted = sorted(name for name in used if name in _TEXTS or name in instance)
        if lacking := [name for name in wanted if instance.get(name) is None]:
            return self.no_score(ScoreStatus.NOT_APPLICABLE, f"the case has no {' and no '.join(lacking)} to fill in")
        texts = {name: _text(instance[name]) for name in wanted}
        asked: Question[Any] = ask_by_template(
            "prompt_template", self.prompt_template, texts, _Grade, lambda answer: answer
        )
        question = replace(asked, system=f"{self.system_instruction}\n\n{asked.system}".strip())
        grades = await self.judge(sample).ask_all(question)
        if isinstance(grades, LlmError):
            return self.no_score(ScoreStatus.ERROR, grades.message)
        scores = [grade.score for grade in grades]
        mean = math.fsum(scores) / len(scores)
        nearest = min(grades, key=lambda grade: abs(grade.score - mean))
        return self.result(mean, reason=excerpt(nearest.explanation, 200), details={"samples": scores})


def _text(value: Any) -> str:
    """A field of the case as text for a judge: the text of a content, other values as JSON."""
    if isinstance(value, str):
        return value
    content = value.get("response", value) if isinstance(value, Mapping) else value
    parts = content.get("parts") if isinstance(content, Mapping) else None
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    return "".join(text for text in texts if text) if texts and all(texts) else as_json(value)


class ComputedMetric(EvalMetric):
    """``exact_match``, ``bleu`` and ``rouge*`` of the last answer and the reference, computed locally."""

    scale: ClassVar[tuple[float, float]] = (0.0, 1.0)

    async def score_case(self, sample: Sample) -> CriterionScore:
        instance = instance_of(sample)
        if "reference" not in instance:
            return self.no_score(ScoreStatus.NOT_APPLICABLE, "the case has no reference")
        if "response" not in instance:
            return self.without_answer()
        reference, answer = _text(instance["reference"]), _text(instance["response"])
        score = await asyncio.to_thread(_compute, self.name, reference, answer)
        return self.result(score, reason=f"{self.name} of the answer and the reference is {score:.3g}")


def _compute(name: str, reference: str, answer: str) -> float:
    if name == "exact_match":
        return float(reference == answer)
    if name == "bleu":
        bleu = importlib.import_module("nltk.translate.bleu_score")  # untyped, and slow to import
        smooth = bleu.SmoothingFunction().method4
        return float(bleu.sentence_bleu([reference.split()], answer.split(), smoothing_function=smooth))
    kind = name.replace("_", "").replace("rougel", "rougeL")
    scorer = importlib.import_module("rouge_score.rouge_scorer").RougeScorer([kind])
    return float(scorer.score(reference, answer)[kind].fmeasure)


class ManagedMetric(VertexCriterion, EvalMetric):
    """A metric of Vertex AI's evaluation service; without a version in its name, the newest one."""

    by_events: ClassVar[bool] = True

    rubric_group_key: str = ""

    def models(self) -> tuple[str, ...]:
        return (f"vertex_eval/{predefined_metric(self.name) or self.name}",)

    async def score_case(self, sample: Sample) -> CriterionScore:
        instance = instance_of(sample)
        needs = next((field for start, field in _NEEDS.items() if self.name.startswith(start)), "")
        if needs and not instance.get(needs):
            return self.no_score(ScoreStatus.NOT_APPLICABLE, f"the case has no {needs}")
        if not self.name.startswith("multi_turn") and len(instance["agent_data"]["turns"]) > 1:
            return self.no_score(ScoreStatus.NOT_APPLICABLE, "this metric scores conversations of one turn")
        parameters = {"rubric_group_key": self.rubric_group_key} if self.rubric_group_key else {}
        return await self.score_conversation(sample, {"eval_case": instance, "parameters": parameters})


_NEEDS: Final = {
    "final_response_match": "reference",
    "final_response_reference_free": "rubric_groups",
    "grounding": "context",
}

_KINDS: Final[dict[MetricKind, type[Criterion]]] = {
    "function": FunctionMetric,
    "prompt": PromptMetric,
    "computed": ComputedMetric,
    "managed": ManagedMetric,
}


def eval_metric(name: str, kind: MetricKind) -> type[Criterion]:
    """The class of a metric of an eval_config, under the user's name for it."""
    base = _KINDS[kind]
    return type(base.__name__, (base,), {"__module__": __name__, "__doc__": None, "name": name})
