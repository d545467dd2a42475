"""google-cloud-aiplatform as we use it: opened once, then asked one instance at a time."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.llm.client import (
    LlmError,
    LlmErrorKind,
    LlmReply,
    LlmRequest,
    ProviderConfig,
    quoted,
    sendable_json,
)
from agent_eval_action.llm.credentials import missing
from agent_eval_action.llm.providers.google import Address, GoogleService, http_options, identity

if TYPE_CHECKING:
    import aiohttp


COHERENCE: Final = "coherence"


class NoSdkError(Exception):
    """The extra is not installed."""


class NoInstanceError(Exception):
    """The SDK's types do not take what is to be judged."""


class VertexClient:
    """The SDK's client and its types."""

    def __init__(self, client: Any, types: Any) -> None:
        self._client = client
        self._types = types

    async def ask(self, metric: str, instance: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one metric for one instance, as JSON; raises what the SDK raises."""
        if metric == COHERENCE:
            # The service has no metric of this name: the SDK reads its prompt from a bucket, once.
            resolve = self._types.PrebuiltMetric.COHERENCE.resolve
            chosen = await asyncio.to_thread(resolve, self._client._api_client)  # noqa: SLF001 - resolve() takes no other
        else:
            chosen = self._types.Metric(name=metric)
        asked = {"metrics": [chosen], "instance": self._instance(instance)}
        answer = await self._client.aio.evals.evaluate_instances(metric_config=asked)
        results = answer.metric_results or ()
        return results[0].model_dump(mode="json", exclude_none=True) if results else {}

    def close(self) -> None:
        """Close the synchronous pool; the session of the asynchronous one is its maker's."""
        with contextlib.suppress(Exception):
            self._client._api_client.close()  # noqa: SLF001 - the public client has no close()

    def _instance(self, instance: Mapping[str, Any]) -> Any:
        try:
            return self._types.EvaluationInstance.model_validate(_fields(instance))
        except ValueError as error:  # pydantic's too
            raise NoInstanceError(str(error)) from error


def _fields(instance: Mapping[str, Any]) -> dict[str, Any]:
    """What ``evals.evaluate`` makes of a row (or of an EvalCase with agent data) for these metrics."""
    if "agent_data" in instance:
        return {"prompt": {"contents": {"contents": []}}, "agent_data": instance["agent_data"]}
    events = [
        {"author": "user", "content": _content(instance["prompt"])},
        {"author": "model", "content": _content(instance["response"])},
    ]
    return {
        "prompt": _data(instance["prompt"]),
        "response": _data(instance["response"]),
        "reference": _data(instance["reference"]) if instance.get("reference") else None,
        "agent_data": {"turns": [{"turn_index": 0, "turn_id": "turn_0", "events": events}]},
    }


def open_evaluation(setup: ProviderConfig, where: Address, session: aiohttp.ClientSession) -> VertexClient:
    """The client. Blocks for the seconds its imports take; raises NoSdkError where the extra is missing."""
    try:
        with _quietly():
            agentplatform = importlib.import_module("agentplatform")  # untyped
            types = agentplatform.types
            importlib.import_module("agentplatform._genai.evals")  # pandas; else at the first call, in the loop
    except ImportError as error:
        lacks = f" ({error.name})" if error.name else ""
        hint = "pip install 'agent-eval-action[vertex]'"
        raise NoSdkError(f"Vertex AI's evaluation service needs packages that are not here{lacks}: {hint}") from error
    return VertexClient(_client(agentplatform, setup, where, session), types)


def _client(agentplatform: Any, setup: ProviderConfig, where: Address, session: aiohttp.ClientSession) -> Any:
    http = http_options(setup, where, session)
    if where.key:
        return agentplatform.Client(api_key=where.key, http_options=http)
    credentials, _ = identity(setup)
    return agentplatform.Client(
        project=where.project, location=where.location, credentials=credentials, http_options=http
    )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Import without the SDK's warnings of its own deprecations, and without a download.

    It imports litellm where that is installed, which fetches a price list from GitHub unless told not to.
    """
    name = "LITELLM_LOCAL_MODEL_COST_MAP"
    before = os.environ.get(name)
    os.environ[name] = "True"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _content(text: str) -> dict[str, Any]:
    return {"parts": [{"text": text}]}


def _data(text: str) -> dict[str, Any]:
    return {"contents": {"contents": [_content(text)]}}


PREFIX: Final = "vertex_eval/"
METRICS: Final = (
    "safety_v1",
    "multi_turn_task_success_v1",
    "multi_turn_trajectory_quality_v1",
    "multi_turn_tool_use_quality_v1",
    COHERENCE,
)
"""Metrics that may follow ``vertex_eval/``; all but coherence are predefined on the service's side."""

_RPC_KINDS: Final = {
    4: LlmErrorKind.TIMEOUT,
    8: LlmErrorKind.RATE_LIMITED,
    10: LlmErrorKind.UNAVAILABLE,
    13: LlmErrorKind.UNAVAILABLE,
    14: LlmErrorKind.UNAVAILABLE,
}
"""google.rpc.Code of a result's own error; the others say that asking again gives the same."""


class VertexEval(GoogleService[VertexClient]):
    """Vertex AI's evaluation service. ``request.options`` is the instance.

    Of one turn: ``prompt``, ``response`` and, where there is one, ``reference`` (texts). Of a conversation:
    ``agent_data`` (agents by name; turns with their events, contents as google-genai writes them). The reply's
    text is ``{"score": number, "explanation": text, "rubrics": [{"text", "met", "reason"}]}``.
    ``GOOGLE_VERTEX_BASE_URL`` stands for the regional endpoint where it is set.
    """

    def make_client(self, where: Address, session: aiohttp.ClientSession) -> VertexClient:
        return open_evaluation(self.setup, where, session)

    async def warm_up(self, model: str) -> str:
        return missing(model, self.setup.environ) or await super().warm_up(model)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        metric = request.model.removeprefix(PREFIX)
        if metric not in METRICS:
            return LlmError(LlmErrorKind.REFUSED, f"`{metric}` is not among the metrics of Vertex AI that are asked")
        if wrong := missing(request.model, self.setup.environ):
            return LlmError(LlmErrorKind.REFUSED, wrong)
        try:
            await self.client(request.model)  # importing the SDK takes seconds, which are no part of the try
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            return self.describe(error, request.model)
        return await super().generate(request)

    async def ask(self, client: tuple[VertexClient, aiohttp.ClientSession], request: LlmRequest) -> LlmReply | LlmError:
        metric = request.model.removeprefix(PREFIX)
        return _reply(await client[0].ask(metric, sendable_json(dict(request.options))))

    def address(self, model: str) -> Address:
        """As google-adk: the key wins. Coherence needs an identity, since its prompt lies in a bucket."""
        key = self.setup.value("GOOGLE_API_KEY")
        if key and model != PREFIX + COHERENCE:
            return Address(vertex=True, key=key)
        project, location = self.setup.value("GOOGLE_CLOUD_PROJECT"), self.setup.value("GOOGLE_CLOUD_LOCATION")
        return Address(vertex=True, project=project, location=location)

    def describe(self, error: Exception, model: str) -> LlmError:
        if isinstance(error, NoSdkError):
            return LlmError(LlmErrorKind.REFUSED, str(error))
        if isinstance(error, NoInstanceError):
            message = f"the conversation cannot be put into a request to Vertex AI: {quoted(str(error))}"
            return LlmError(LlmErrorKind.REFUSED, message)
        return super().describe(error, model)


def _reply(result: Mapping[str, Any]) -> LlmReply | LlmError:
    """The metric's result as a reply; a result without a score is no answer, whatever else it holds."""
    failure = result.get("error") or {}
    if failure.get("code"):
        kind = _RPC_KINDS.get(int(failure["code"]), LlmErrorKind.REFUSED)
        return LlmError(kind, f"Vertex AI could not score this: {quoted(failure.get('message')) or failure['code']}")
    score = result.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        why = f": {quoted(result['explanation'])}" if result.get("explanation") else ""
        return LlmError(LlmErrorKind.EMPTY, f"Vertex AI answered without a score{why}")
    rubrics = [_rubric(verdict) for verdict in result.get("rubric_verdicts") or ()]
    value = {"score": float(score), "explanation": result.get("explanation") or "", "rubrics": rubrics}
    return LlmReply(json.dumps(value, ensure_ascii=False))


def _rubric(verdict: Mapping[str, Any]) -> dict[str, Any]:
    rubric = verdict.get("evaluated_rubric") or {}
    text = ((rubric.get("content") or {}).get("property") or {}).get("description")
    return {
        "text": text or rubric.get("rubric_id") or "",
        "met": bool(verdict.get("verdict")),  # the service leaves out what is false
        "reason": verdict.get("reasoning") or "",
    }
