"""google-cloud-aiplatform as we use it: opened once, then asked one instance at a time."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.llm.google_client import Address, base_url, identity
from agent_eval_action.llm.setup import Setup

if TYPE_CHECKING:
    import aiohttp

COHERENCE: Final = "coherence"


class NoSdkError(Exception):
    """The extra is not installed."""


class NoInstanceError(Exception):
    """The SDK's types do not take what is to be judged."""


class Evaluation:
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

    def _instance(self, said: Mapping[str, Any]) -> Any:
        try:
            return self._types.EvaluationInstance.model_validate(_fields(said))
        except ValueError as error:  # pydantic's too
            raise NoInstanceError(str(error)) from error


def _fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """What ``evals.evaluate`` makes of a row (or of an EvalCase with agent data) for these metrics."""
    if "agent_data" in said:
        return {"prompt": {"contents": {"contents": []}}, "agent_data": said["agent_data"]}
    events = [
        {"author": "user", "content": _content(said["prompt"])},
        {"author": "model", "content": _content(said["response"])},
    ]
    return {
        "prompt": _data(said["prompt"]),
        "response": _data(said["response"]),
        "reference": _data(said["reference"]) if said.get("reference") else None,
        "agent_data": {"turns": [{"turn_index": 0, "turn_id": "turn_0", "events": events}]},
    }


def open_evaluation(setup: Setup, where: Address, session: aiohttp.ClientSession) -> Evaluation:
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
    return Evaluation(_client(agentplatform, setup, where, session), types)


def _client(agentplatform: Any, setup: Setup, where: Address, session: aiohttp.ClientSession) -> Any:
    from google.genai.types import HttpOptions, HttpRetryOptions  # noqa: PLC0415 - loaded by now

    # As for Google's models (google_client.new_client): one try, no redirect, our own connections.
    http = HttpOptions(
        base_url=base_url(setup, where),
        timeout=round(setup.timeout * 1000),
        retry_options=HttpRetryOptions(attempts=1),
        async_client_args={"allow_redirects": False},
        aiohttp_client=session,
    )
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
