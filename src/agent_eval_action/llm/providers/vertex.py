"""Vertex AI's evaluation service, called through google-cloud-aiplatform, one instance per call."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import os
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest, quoted, sendable_json
from agent_eval_action.llm.credentials import missing
from agent_eval_action.llm.providers.google import Address, GoogleService

if TYPE_CHECKING:
    import aiohttp

PREFIX: Final = "vertex_eval/"
COHERENCE: Final = "coherence"
METRICS: Final = (
    "safety_v1",
    "multi_turn_task_success_v1",
    "multi_turn_trajectory_quality_v1",
    "multi_turn_tool_use_quality_v1",
    COHERENCE,
)
"""Metrics that may follow ``vertex_eval/`` besides ``PREDEFINED``."""

PREDEFINED: Final[Mapping[str, tuple[int, ...]]] = {
    "final_response_match": (2, 3),
    "final_response_quality": (1, 2),
    "final_response_reference_free": (1, 2),
    "general_quality": (1, 2),
    "grounding": (1, 2),
    "hallucination": (1, 2),
    "instruction_following": (1, 2),
    "multi_turn_general_quality": (1, 2),
    "multi_turn_task_success": (1,),
    "multi_turn_text_quality": (1, 2),
    "multi_turn_tool_use_quality": (1,),
    "multi_turn_trajectory_quality": (1,),
    "safety": (1, 3),
    "text_quality": (1, 2),
    "tool_use_quality": (1, 2),
}
"""The service's predefined text metrics, with their versions; a test compares them with the SDK's."""


def predefined_metric(name: str) -> str | None:
    """The metric's name with its version, the newest if ``name`` has none; None for an unknown metric."""
    if name in PREDEFINED:
        return f"{name}_v{PREDEFINED[name][-1]}"
    base, _, version = name.rpartition("_v")
    return name if version.isdecimal() and int(version) in PREDEFINED.get(base, ()) else None


_RPC_KINDS: Final = {
    4: LlmErrorKind.TIMEOUT,
    8: LlmErrorKind.RATE_LIMITED,
    10: LlmErrorKind.UNAVAILABLE,
    13: LlmErrorKind.UNAVAILABLE,
    14: LlmErrorKind.UNAVAILABLE,
}
"""Kinds by the google.rpc.Code of a result's error; for all other codes retrying is pointless."""

_DOWNLOAD_SWITCH: Final = "LITELLM_LOCAL_MODEL_COST_MAP"


class VertexEval(GoogleService[Any]):
    """Vertex AI's evaluation service. ``request.options`` is the instance to score.

    For a turn: ``prompt``, ``response`` and optionally ``reference`` (texts). For a conversation: ``agent_data``
    (agents by name; turns with their events, contents as google-genai writes them). For a case of agents-cli:
    ``eval_case`` with these fields, ``rubric_groups`` and ``context``, and the metric's ``parameters``. The text of the
    reply is ``{"score": number, "explanation": text, "rubrics": [{"text", "met", "reason"}]}``.
    ``GOOGLE_VERTEX_BASE_URL`` replaces the regional endpoint if set.
    """

    def make_client(self, where: Address, session: aiohttp.ClientSession) -> Any:
        """Make the client; its imports block for seconds. Raises ImportError if the extra is missing."""
        sdk, options = _import_sdk(), self.http_options(where, session)
        if where.key:
            return sdk.Client(api_key=where.key, http_options=options)
        credentials, _ = self.identity()
        return sdk.Client(project=where.project, location=where.location, credentials=credentials, http_options=options)

    async def warm_up(self, model: str) -> str:
        return missing(model, self.setup.environ) or await super().warm_up(model)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        metric = request.model.removeprefix(PREFIX)
        if metric not in METRICS and predefined_metric(metric) != metric:
            return LlmError(LlmErrorKind.REFUSED, f"`{metric}` is not among the metrics of Vertex AI that are asked")
        if wrong := missing(request.model, self.setup.environ):
            return LlmError(LlmErrorKind.REFUSED, wrong)
        try:
            await self.client(request.model)  # importing the SDK takes seconds, which must not count as the try
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            return self.describe(error, request.model)
        return await super().generate(request)

    async def ask(self, client: tuple[Any, aiohttp.ClientSession], request: LlmRequest) -> LlmReply | LlmError:
        sdk, types = client[0], importlib.import_module("agentplatform").types  # imported with the client
        try:
            instance = types.EvaluationInstance.model_validate(_instance(sendable_json(dict(request.options))))
        except ValueError as error:  # pydantic's too
            message = f"the conversation cannot be put into a request to Vertex AI: {quoted(str(error))}"
            return LlmError(LlmErrorKind.REFUSED, message)
        name = request.model.removeprefix(PREFIX)
        if name == COHERENCE:
            # the service has no such metric: the SDK reads its prompt from a bucket, once
            resolve = types.PrebuiltMetric.COHERENCE.resolve
            metric = await asyncio.to_thread(resolve, sdk._api_client)  # noqa: SLF001 - resolve() takes no other
        else:
            metric = types.Metric(name=name, metric_spec_parameters=request.options.get("parameters") or None)
        answer = await sdk.aio.evals.evaluate_instances(metric_config={"metrics": [metric], "instance": instance})
        results = answer.metric_results or ()
        return _reply(results[0].model_dump(mode="json", exclude_none=True) if results else {})

    def address(self, model: str) -> Address:
        """Like google-adk, prefer the key. Coherence needs an identity, since its prompt lies in a bucket."""
        key = self.setup.value("GOOGLE_API_KEY")
        if key and model != PREFIX + COHERENCE:
            return Address(vertex=True, key=key)
        project, location = self.setup.value("GOOGLE_CLOUD_PROJECT"), self.setup.value("GOOGLE_CLOUD_LOCATION")
        return Address(vertex=True, project=project, location=location)

    def describe(self, error: Exception, model: str) -> LlmError:
        if isinstance(error, ImportError):
            lacks = f" ({error.name})" if error.name else ""
            hint = "pip install 'agent-eval-action[vertex]'"
            message = f"Vertex AI's evaluation service needs packages that are not here{lacks}: {hint}"
            return LlmError(LlmErrorKind.REFUSED, message)
        return super().describe(error, model)


def _import_sdk() -> ModuleType:
    """Import the SDK without its deprecation warnings and without a download by litellm."""
    before = os.environ.get(_DOWNLOAD_SWITCH)
    os.environ[_DOWNLOAD_SWITCH] = "True"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sdk = importlib.import_module("agentplatform")  # untyped
            _ = sdk.types
            importlib.import_module("agentplatform._genai.evals")  # imports pandas here, not in the event loop
    finally:
        if before is None:
            os.environ.pop(_DOWNLOAD_SWITCH, None)
        else:
            os.environ[_DOWNLOAD_SWITCH] = before
    return sdk


def _instance(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Build the instance like ``evals.evaluate`` does from a row or an EvalCase with agent data."""
    if "eval_case" in instance:
        return _case_instance(instance["eval_case"])
    if "agent_data" in instance:
        return {"prompt": {"contents": {"contents": []}}, "agent_data": instance["agent_data"]}
    texts = {name: {"parts": [{"text": text}]} for name, text in instance.items() if text}
    events = [{"author": "user", "content": texts["prompt"]}, {"author": "model", "content": texts["response"]}]
    return {
        **{name: {"contents": {"contents": [content]}} for name, content in texts.items()},
        "agent_data": {"turns": [{"turn_index": 0, "turn_id": "turn_0", "events": events}]},
    }


def _case_instance(case: Mapping[str, Any]) -> dict[str, Any]:
    """Build the instance like ``_evals_metric_handlers._build_evaluation_instance`` (2.7.0) does from an EvalCase."""
    reference, context = case.get("reference") or {}, case.get("context")
    contents = {"prompt": case.get("prompt"), "response": case.get("response"), "reference": reference.get("response")}
    data: dict[str, Any] = {
        name: {"contents": {"contents": [content]}} for name, content in contents.items() if content
    }
    if context:
        of_context = {"text": context} if isinstance(context, str) else {"contents": {"contents": [context]}}
        data["other_data"] = {"map_instance": {"context": of_context}}
    kept = {name: case[name] for name in ("rubric_groups", "agent_data") if case.get(name)}
    return {**data, **kept}


def _reply(result: Mapping[str, Any]) -> LlmReply | LlmError:
    """Turn the metric's result into a reply; a result without a score is an error, whatever else it has."""
    failure = result.get("error") or {}
    if failure.get("code"):
        kind = _RPC_KINDS.get(int(failure["code"]), LlmErrorKind.REFUSED)
        return LlmError(kind, f"Vertex AI could not score this: {quoted(failure.get('message')) or failure['code']}")
    score = result.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        why = f": {quoted(result['explanation'])}" if result.get("explanation") else ""
        return LlmError(LlmErrorKind.EMPTY, f"Vertex AI answered without a score{why}")
    rubrics = []
    for verdict in result.get("rubric_verdicts") or ():
        rubric = verdict.get("evaluated_rubric") or {}
        text = ((rubric.get("content") or {}).get("property") or {}).get("description")
        # the service omits verdicts that are false
        met, reason = bool(verdict.get("verdict")), verdict.get("reasoning") or ""
        rubrics.append({"text": text or rubric.get("rubric_id") or "", "met": met, "reason": reason})
    value = {"score": float(score), "explanation": result.get("explanation") or "", "rubrics": rubrics}
    return LlmReply(json.dumps(value, ensure_ascii=False))
