"""A model that is agent, judges and simulated user at once: tells what a request wants, and answers it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.fenced_texts import texts_of
from support.gemini_server.messages import ModelRequest, Reply
from support.openai_server.messages import ChatReply, ChatRequest

Texts = dict[str, str]


@dataclass(frozen=True)
class JudgeCall:
    """One question to a judge, whichever wire it came by."""

    kind: str
    texts: Texts
    schema: dict[str, Any]


def kind_of(schema: dict[str, Any], texts: Texts) -> str:
    """Which question it is, told by what is asked for and what is shown."""
    wanted = set(schema.get("properties", {}))
    if wanted & {"sentences", "labels"}:
        return min(wanted & {"sentences", "labels"})
    if "score" in wanted:
        return "grade"
    if "verdicts" in wanted:
        return "conversation" if "conversation" in texts else "answer" if "answer" in texts else "tools"
    return "match" if "reference" in texts else "user_turn"


@dataclass
class JudgeModel:
    """``verdict`` decides each yes/no (rubrics by their own text); ``agent`` and ``user`` answer what is no judging.

    ``asked`` counts requests by kind: agent, user, match, answer, tools, conversation, sentences, labels, grade,
    user_turn.
    """

    agent: Callable[[ModelRequest], Reply]
    verdict: Callable[[str, Texts], str] = lambda _kind, _texts: "yes"
    user: Callable[[ModelRequest], Reply] = lambda _request: Reply(text="Thanks! </finished>")
    label: Callable[[str], str] = lambda _sentence: "supported"
    grade: Callable[[Texts], float] = lambda _texts: 1.0
    asked: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    calls: list[JudgeCall] = field(default_factory=list)

    def gemini(self, request: ModelRequest) -> Reply:
        """The answer to a request of Gemini's REST."""
        schema = (request.body.get("generationConfig") or {}).get("responseJsonSchema")
        if schema:
            return Reply(text=self.judge(schema, request.body["contents"][0]["parts"][0]["text"]))
        if "You play a person" in request.instruction:
            self._count("user")
            return self.user(request)
        self._count("agent")
        return self.agent(request)

    def openai(self, request: ChatRequest) -> ChatReply:
        """The answer to a request of OpenAI's wire; only judges come by it."""
        schema = request.body["response_format"]["json_schema"]["schema"]
        first = next(one["content"] for one in request.body["messages"] if one["role"] == "user")
        return ChatReply(self.judge(schema, first))

    def judge(self, schema: dict[str, Any], message: str) -> str:
        """A judge's answer as JSON of the schema."""
        try:
            texts = texts_of(message)
        except AssertionError as broken:  # answered 400 and kept, so that the test is red at once
            raise LookupError(f"the texts of a judge's message cannot be told apart: {broken}") from broken
        kind = kind_of(schema, texts)
        self._count(kind)
        self.calls.append(JudgeCall(kind, texts, schema))
        if kind == "grade":
            found = {"rationale": "grade: as one can see.", "score": self.grade(texts), "verdict": "yes"}
            return json.dumps({name: value for name, value in found.items() if name in schema["properties"]})
        return json.dumps(self._judged(kind, texts))

    def _judged(self, kind: str, texts: Texts) -> dict[str, Any]:
        if kind == "sentences":
            return {"sentences": re.findall(r"\S.*?(?:[.!?](?=\s|$)|$)", texts["answer"])}
        if kind == "labels":
            sentences = json.loads(texts["sentences"])
            labels = [
                {"index": one["index"], "rationale": "It is in no result.", "label": self.label(one["sentence"])}
                for one in sentences
            ]
            return {"labels": labels}
        if "rubrics" in texts:
            rubrics = json.loads(texts["rubrics"])
            return {"verdicts": [{"rubric": one["rubric"], **self._yes_or_no(kind, one)} for one in rubrics]}
        return self._yes_or_no(kind, texts)

    def _yes_or_no(self, kind: str, texts: Texts) -> dict[str, str]:
        verdict = self.verdict(kind, texts)
        return {"rationale": f"{kind}: {verdict}, as one can see.", "verdict": verdict}

    def _count(self, kind: str) -> None:
        self.asked[kind] += 1
        self.order.append(kind)
