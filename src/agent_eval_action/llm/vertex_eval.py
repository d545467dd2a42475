"""Vertex AI's evaluation service as a model: one instance in, a score in JSON out, by the SDK of Google Cloud.

google-adk calls ``evals.evaluate``, which is synchronous, draws progress bars, sleeps through five retries of
its own and asks BigQuery's client for credentials even where an API key is given. What it sends in the end is
one ``evaluateInstances`` request per metric and case; the SDK's asynchronous method for that is what we call,
so that our policies alone decide about retries and rates (tests/parity holds the two requests equal).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from agent_eval_action.llm import vertex_sdk
from agent_eval_action.llm.base import LlmError, LlmErrorKind, LlmReply, LlmRequest
from agent_eval_action.llm.credentials import missing
from agent_eval_action.llm.google_client import Address
from agent_eval_action.llm.google_clients import Clients
from agent_eval_action.llm.google_errors import from_exception
from agent_eval_action.llm.setup import Setup
from agent_eval_action.llm.text import quoted, sendable_json
from agent_eval_action.llm.vertex_sdk import COHERENCE, Evaluation, NoInstanceError, NoSdkError

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


@dataclass
class VertexEval:
    """A ``Provider``. ``request.options`` is the instance.

    Of one turn: ``prompt``, ``response`` and, where there is one, ``reference`` (texts). Of a conversation:
    ``agent_data`` (agents by name; turns with their events, contents as google-genai writes them). The reply's
    text is ``{"score": number, "explanation": text, "rubrics": [{"text", "met", "reason"}]}``.
    ``GOOGLE_VERTEX_BASE_URL`` stands for the regional endpoint where it is set.
    """

    setup: Setup
    _clients: Clients[Evaluation] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._clients = Clients(partial(vertex_sdk.open_evaluation, self.setup))

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """Nothing: its options are instances, and no user writes them."""
        del options
        return ""

    async def warm_up(self, model: str) -> str:
        """Load the SDK while something else is waited for; what fails, in one sentence."""
        if wrong := missing(model, self.setup.environ):
            return wrong
        try:
            await self._clients.of(self._address(model))
        except Exception as error:  # noqa: BLE001 - whatever is raised is told as a sentence
            return self._failed(error, model).message
        return ""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """The score of one instance; one try."""
        metric = request.model.removeprefix(PREFIX)
        if metric not in METRICS:
            return LlmError(LlmErrorKind.REFUSED, f"`{metric}` is not among the metrics of Vertex AI that are asked")
        if wrong := missing(request.model, self.setup.environ):
            return LlmError(LlmErrorKind.REFUSED, wrong)
        began = time.monotonic()
        try:
            evaluation = await self._clients.of(self._address(request.model))
            began = time.monotonic()
            # Around everything, the renewal of a token included.
            async with asyncio.timeout(self.setup.timeout):
                said = _reply(await evaluation.ask(metric, sendable_json(dict(request.options))))
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            said = self._failed(error, request.model)
        return replace(said, seconds=time.monotonic() - began) if isinstance(said, LlmError) else said

    async def close(self) -> None:
        """Give the connections back."""
        await self._clients.close()

    def _address(self, model: str) -> Address:
        """As google-adk: the key wins. Coherence needs an identity, since its prompt lies in a bucket."""
        key = self.setup.value("GOOGLE_API_KEY")
        if key and model != PREFIX + COHERENCE:
            return Address(vertex=True, key=key)
        project, location = self.setup.value("GOOGLE_CLOUD_PROJECT"), self.setup.value("GOOGLE_CLOUD_LOCATION")
        return Address(vertex=True, project=project, location=location)

    def _failed(self, error: Exception, model: str) -> LlmError:
        if isinstance(error, NoSdkError):
            return LlmError(LlmErrorKind.REFUSED, str(error))
        if isinstance(error, NoInstanceError):
            said = f"the conversation cannot be put into a request to Vertex AI: {quoted(str(error))}"
            return LlmError(LlmErrorKind.REFUSED, said)
        key = self._address(model).key
        return from_exception(error, vertex=True, secrets=[key] if key else [])


def _reply(said: Mapping[str, Any]) -> LlmReply | LlmError:
    """The metric's result as a reply; a result without a score is no answer, whatever else it holds."""
    failure = said.get("error") or {}
    if failure.get("code"):
        kind = _RPC_KINDS.get(int(failure["code"]), LlmErrorKind.REFUSED)
        return LlmError(kind, f"Vertex AI could not score this: {quoted(failure.get('message')) or failure['code']}")
    score = said.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        why = f": {quoted(said['explanation'])}" if said.get("explanation") else ""
        return LlmError(LlmErrorKind.EMPTY, f"Vertex AI answered without a score{why}")
    rubrics = [_rubric(verdict) for verdict in said.get("rubric_verdicts") or ()]
    value = {"score": float(score), "explanation": said.get("explanation") or "", "rubrics": rubrics}
    return LlmReply(json.dumps(value, ensure_ascii=False))


def _rubric(verdict: Mapping[str, Any]) -> dict[str, Any]:
    rubric = verdict.get("evaluated_rubric") or {}
    text = ((rubric.get("content") or {}).get("property") or {}).get("description")
    return {
        "text": text or rubric.get("rubric_id") or "",
        "met": bool(verdict.get("verdict")),  # the service leaves out what is false
        "reason": verdict.get("reasoning") or "",
    }
