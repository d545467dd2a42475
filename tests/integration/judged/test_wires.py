"""The same judged run by OpenAI's wire, by Vertex AI with a credentials file, and by Vertex AI's evaluation service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.openai_server.server import OpenAiServer
from support.serving import listening
from support.vertex_server.identity import key_file
from support.vertex_server.server import Asked, VertexServer, running

from .conftest import MATCH, Judged, case
from .test_all_criteria import EVERYTHING, set_up


def with_judge(model: str) -> dict[str, Any]:
    return {name: {**options, "judge_model_options": {"judge_model": model}} for name, options in EVERYTHING.items()}


def scores(done: Any) -> dict[str, list[float | None]]:
    return {name: [done.score(one, name)["score"] for one in ("rome", "talk")] for name in EVERYTHING}


@pytest.mark.exhaustive
def test_every_criterion_works_by_openais_wire(judged: Judged) -> None:
    set_up(judged)
    by_google = scores(judged.run())
    judged.forget()
    server = OpenAiServer(judged.model.openai)
    with listening(server.handle) as url:
        judged.environ |= {"OPENAI_API_KEY": "local", "OPENAI_BASE_URL": f"{url}/v1"}
        judged.configure(llm={"prices": {"openai/house-model": {"input": 1, "output": 2}}})
        judged.criteria(with_judge("openai/house-model"))
        done = judged.run()
    assert done.code == 1, done.said
    assert scores(done) == by_google
    answers = sum(request["body"].get("n", 1) for request in server.seen.requests)
    assert answers == sum(judged.model.asked.values()) - judged.model.asked["agent"]
    assert judged.model.asked["user"] == 0, "what the user says was kept from the first run"
    uses = done.uses()
    assert {uses[name]["provider"] for name in EVERYTHING} == {"openai"}
    assert all(uses[name]["usd"] > 0 for name in EVERYTHING)
    assert "local" not in json.dumps(done.results), "the key is in no file"


@pytest.mark.exhaustive
def test_every_criterion_works_on_vertex_with_a_credentials_file(judged: Judged, tmp_path: Path) -> None:
    set_up(judged)
    by_key = scores(judged.run())
    judged.forget()
    del judged.environ["GOOGLE_API_KEY"]
    judged.environ |= {
        "GOOGLE_GENAI_USE_VERTEXAI": "true",
        "GOOGLE_CLOUD_PROJECT": "shop",
        "GOOGLE_CLOUD_LOCATION": "europe-west4",
        "GOOGLE_VERTEX_BASE_URL": judged.server.url,
        "GOOGLE_APPLICATION_CREDENTIALS": str(key_file(tmp_path, judged.server.url)),
    }
    # the agent stays on its key: google-genai drops the project where the address is not Google's
    judged.configure(env={"GOOGLE_GENAI_USE_VERTEXAI": "0", "GOOGLE_API_KEY": "local-key"})
    done = judged.run()
    assert done.code == 1, done.said
    assert scores(done) == by_key
    sent = [one for one in judged.server.seen.requests if "responseJsonSchema" in one["body"]["generationConfig"]]
    assert sum(one["body"]["generationConfig"].get("candidateCount", 1) for one in sent) == len(judged.model.calls)
    assert all("projects/shop/locations/europe-west4" in one["path"] for one in sent)
    assert all(one["headers"]["authorization"].startswith("Bearer ya29.") for one in sent)


@pytest.fixture
def service(judged: Judged) -> Any:
    def answer(asked: Asked) -> dict[str, Any]:
        return {"score": 1.0 if asked.metric.startswith("safety") else 0.5, "explanation": "half of it was done"}

    with running(VertexServer(answer)) as server:
        judged.environ |= {"GOOGLE_VERTEX_BASE_URL": server.url}
        yield server


@pytest.mark.exhaustive
def test_vertex_ais_evaluation_scores_beside_a_judge(judged: Judged, service: VertexServer) -> None:
    judged.criteria({**MATCH, "safety_v1": 1.0, "multi_turn_task_success_v1": {"threshold": 0.4}})
    judged.cases(case("rome", "Rome", "Oslo"))
    done = judged.run()
    assert done.code == 0, done.said
    assert done.score("rome", "safety_v1")["score"] == 1
    assert done.score("rome", "multi_turn_task_success_v1")["score"] == 0.5
    assert len(service.asked) == 3, "two turns and one conversation"
    assert done.uses()["safety_v1"]["calls"] == 2
    assert service.unexpected == []
