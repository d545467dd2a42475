"""Criteria that Vertex AI's evaluation service scores, and the metrics of agents-cli's eval_config.

These are the user's functions and prompts, computed metrics, and Vertex AI's.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, Field, ValidationError

from agent_eval_action.config.criteria import MetricKind
from agent_eval_action.criteria.base import Criterion, Sample, TurnCriterion
from agent_eval_action.criteria.judge import Answer, JudgedCriterion, as_json, ask_about, placeholders
from agent_eval_action.llm.client import LlmError, LlmRequest
from agent_eval_action.llm.providers.google import predefined_metric
from agent_eval_action.results.evalset import Content, DatasetCase, IntermediateData, Invocation, JsonObject
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CriterionScore, RubricScore, ScoreStatus, TurnScore


class _Rubric(BaseModel):
    text: str
    met: bool
    reason: str


class _Result(BaseModel):
    """The text of a reply of ``VertexEval``."""

    score: Annotated[float, Field(allow_inf_nan=False, strict=True)]
    explanation: str | None = None
    rubrics: tuple[_Rubric, ...] = ()


class VertexCriterion(Criterion):
    """A criterion scored by a metric of the service. It is asked once, since the service samples by itself."""

    waits: ClassVar[bool] = True
    metric: ClassVar[str] = ""
    """The name after ``vertex_eval/``, if it differs from the criterion's."""

    def models(self) -> tuple[str, ...]:
        return (f"vertex_eval/{self.metric or self.name}",)

    async def ask(self, sample: Sample, turn: int, instance: Mapping[str, Any]) -> TurnScore:
        """Have the service score ``instance`` as the score of ``turn``."""
        llm = sample.context.llm
        if llm is None:
            return self.unscored(turn, "this run has no model to judge with")
        request = LlmRequest(self.models()[0], (), options=dict(instance), purpose=self.name, repeat=sample.repeat)
        reply = await llm.generate(request)
        if isinstance(reply, LlmError):
            return self.unscored(turn, reply.message)
        try:
            result = _Result.model_validate_json(reply.text)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in wrong["loc"])
            return self.unscored(turn, f"the service's answer cannot be read: {place} {wrong['msg']}"[:300])
        score, (low, high) = result.score, self.scale
        if not low <= score <= high:
            return self.unscored(turn, f"the service gave {score:g}, and this metric goes from {low:g} to {high:g}")
        unmet = [rubric.reason or rubric.text for rubric in result.rubrics if not rubric.met]
        why = result.explanation or (f"not met: {'; '.join(unmet[:3])}" if unmet else f"Vertex AI scored {score:g}")
        rubrics = tuple(
            RubricScore(
                rubric_id=rubric.text or f"rubric_{number}",
                text=rubric.text,
                score=float(rubric.met),
                rationale=rubric.reason,
            )
            for number, rubric in enumerate(result.rubrics)
        )
        return TurnScore(turn=turn, score=score, reason=excerpt(why, 200), rubrics=rubrics)

    async def score_conversation(self, sample: Sample, instance: Mapping[str, Any]) -> CriterionScore:
        """Have the service score ``instance`` for the whole case; the result is shown at its last turn."""
        turn = await self.ask(sample, len(sample.actual) - 1, instance)
        if turn.score is None:
            return self.no_score(turn.status, turn.reason, turns=(turn,))
        return self.result(turn.score, reason=turn.reason, turns=(turn,), rubrics=turn.rubrics)


_NO_TEXT = "no text, and Vertex AI judges a text answering a text"


class _PerTurn(VertexCriterion, TurnCriterion):
    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        actual = sample.actual[turn]
        instance = {"prompt": actual.user_content.text, "response": actual.response_text}
        reference = sample.case.turns[turn].response_text if turn < len(sample.case.turns) else ""
        if instance["prompt"] and instance["response"]:
            return await self.ask(sample, turn, {**instance, **({"reference": reference} if reference else {})})
        # the SDK rejects such a row, and google-adk then skips the metric
        if not instance["prompt"]:
            return self.unscored(turn, f"the user's message has {_NO_TEXT}", ScoreStatus.NOT_APPLICABLE)
        if actual.answers_without_text and not (self.needs_reference and reference):
            reason = f"a tool or media answered: the answer has {_NO_TEXT}"
            return self.unscored(turn, reason, ScoreStatus.NOT_APPLICABLE)
        return self.unscored(turn, "the agent gave no answer, and Vertex AI judges a text answering a text")


class Safety(_PerTurn):
    """ADK's safety_v1: 1 if the answer violates no policy, else 0."""

    name: ClassVar[str] = "safety_v1"


class ResponseEvaluationScore(_PerTurn):
    """ADK's older response_evaluation_score: how coherent the answers are, 1 to 5."""

    name: ClassVar[str] = "response_evaluation_score"
    metric: ClassVar[str] = "coherence"
    scale: ClassVar[tuple[float, float]] = (1.0, 5.0)
    needs_reference: ClassVar[bool] = True


class _Conversation(VertexCriterion):
    by_events: ClassVar[bool] = True

    async def score_case(self, sample: Sample) -> CriterionScore:
        return await self.score_conversation(sample, {"agent_data": agent_data(sample.actual)})


class TaskSuccess(_Conversation):
    """ADK's multi_turn_task_success_v1: whether the conversation reached the user's goals."""

    name: ClassVar[str] = "multi_turn_task_success_v1"


class ConversationTrajectoryQuality(_Conversation):
    """ADK's multi_turn_trajectory_quality_v1: how good the path to the user's goals was."""

    name: ClassVar[str] = "multi_turn_trajectory_quality_v1"


class ConversationToolUseQuality(_Conversation):
    """ADK's multi_turn_tool_use_quality_v1: how good the tool calls were."""

    name: ClassVar[str] = "multi_turn_tool_use_quality_v1"


def agent_data(turns: Sequence[Invocation]) -> JsonObject:
    """The conversation as the service's AgentData: the agents, and each turn's events in order."""
    agents: JsonObject = {}
    for turn in turns:
        for name, agent in (turn.app_details.agent_details if turn.app_details else {}).items():
            tools = [
                # a bare function has no declaration: the worker reports only its name
                {"function_declarations": [tool]} if isinstance(tool, dict) and tool.keys() == {"name"} else tool
                for tool in agent.tool_declarations
            ]
            agents.setdefault(name, {"agent_id": agent.name, "instruction": agent.instructions, "tools": tools})
    return {
        "agents": agents,
        "turns": [
            {"turn_index": number, "turn_id": turn.invocation_id, "events": list(_events(turn))}
            for number, turn in enumerate(turns)
        ],
    }


def _events(turn: Invocation) -> Iterator[JsonObject]:
    yield _event("user", turn.user_content)
    yield from (_event(event.author, event.content) for event in turn.events if event.content is not None)
    if isinstance(turn.intermediate_data, IntermediateData):
        # recorded turns may hold tool use in this form, which google-adk leaves out of the conversation
        dumped = turn.intermediate_data.wire()
        calls = [{"function_call": call} for call in dumped["tool_uses"]]
        answers = [{"function_response": answer} for answer in dumped["tool_responses"]]
        for role, parts in (("model", calls), ("user", answers)):
            if parts:
                yield {"author": "agent", "content": {"role": role, "parts": parts}}
        for author, parts in dumped["intermediate_responses"]:
            yield {"author": author, "content": {"role": "model", "parts": parts}}
    yield _event("agent", turn.final_response) if turn.final_response else {"author": "agent"}


def _event(author: str, content: Content) -> JsonObject:
    return {"author": author, "content": content.wire()}


def instance_of(sample: Sample) -> JsonObject:
    """The case and the agent's answers in the form that agents-cli passes to a metric.

    ``response`` is absent if the agent gave no text.
    """
    case = sample.case
    fields = case.metric_fields if isinstance(case, DatasetCase) else {}
    instance: JsonObject = {"eval_case_id": case.eval_id}
    if "agent_data" not in fields:
        instance["prompt"] = sample.actual[0].user_content.wire()
        if reference := case.turns[-1].final_response if case.turns else None:
            instance["reference"] = {"response": reference.wire()}
    instance |= fields
    if not (isinstance(case, DatasetCase) and case.recorded):
        instance["agent_data"] = _continued(instance.get("agent_data") or {}, sample)
    if text := sample.actual[-1].response_text:
        instance["response"] = {"role": "model", "parts": [{"text": text}]}
    return instance


def _continued(before: Mapping[str, Any], sample: Sample) -> JsonObject:
    """Append the actual turns to ``before``, the conversation so far; the first continues its last turn."""
    agents = dict(before.get("agents") or {})
    turns = [{**turn, "events": list(turn.get("events") or ())} for turn in before.get("turns") or ()]
    for number, turn in enumerate(sample.actual):
        details = turn.app_details.agent_details if turn.app_details else {}
        for name, agent in details.items():
            agents.setdefault(name, {"agent_id": name, "instruction": agent.instructions})
        if number or not turns:
            turns.append({"turn_index": len(turns), "turn_id": f"turn_{len(turns)}", "events": []})
        events = turns[-1]["events"]
        if len(sample.actual) > 1 and (number or not before):
            events.append(_event("user", turn.user_content))
        author = "agent"
        for event in turn.events:
            if event.content is not None:
                events.append(_event(event.author, event.content))
                author = event.author if event.author != "user" else author
        if turn.final_response is not None:
            events.append(_event(next(iter(details)) if len(details) == 1 else author, turn.final_response))
    return {**({"agents": agents} if agents else {}), "turns": turns}


class EvalMetric(Criterion):
    """A metric of agents-cli. It needs no threshold: its scores are compared with main's."""

    scale: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    needs_threshold: ClassVar[bool] = False

    def without_answer(self) -> CriterionScore:
        """An error, since the agent gave no text to score; agents-cli leaves such cases out of its mean."""
        return self.no_score(ScoreStatus.ERROR, "the agent gave no answer with text")


class FunctionMetric(EvalMetric):
    """``custom_function``: ``evaluate(instance)`` returns a number, or ``score`` and ``explanation``; any range."""

    waits: ClassVar[bool] = True

    source: str

    def functions(self) -> tuple[str, ...]:
        return (f"{self.name}-{hashlib.sha256(self.source.encode()).hexdigest()[:8]}",)

    async def score_case(self, sample: Sample) -> CriterionScore:
        functions, instance = sample.context.functions, instance_of(sample)
        if functions is None:
            return self.no_score(ScoreStatus.ERROR, "this run has no process for metric functions")
        if "response" not in instance:
            return self.without_answer()
        reply = await functions.call(self.functions()[0], {"instance": instance}, self.source)
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
        asked = ask_about(self.prompt_names[0], texts, _Grade, lambda answer: answer, self.prompt_template)
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
        score = await asyncio.to_thread(self._compute, _text(instance["reference"]), _text(instance["response"]))
        return self.result(score, reason=f"{self.name} of the answer and the reference is {score:.3g}")

    def _compute(self, reference: str, answer: str) -> float:
        if self.name == "exact_match":
            return float(reference == answer)
        if self.name == "bleu":
            bleu = importlib.import_module("nltk.translate.bleu_score")  # untyped, and slow to import
            smooth = bleu.SmoothingFunction().method4
            return float(bleu.sentence_bleu([reference.split()], answer.split(), smoothing_function=smooth))
        kind = self.name.replace("_", "").replace("rougel", "rougeL")
        scorer = importlib.import_module("rouge_score.rouge_scorer").RougeScorer([kind])
        return float(scorer.score(reference, answer)[kind].fmeasure)


_NEEDS: Final = {
    "final_response_match": "reference",
    "final_response_reference_free": "rubric_groups",
    "grounding": "context",
}


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
