"""Options and forms of a request on OpenAI's wire, and how an answer's text is read."""

from __future__ import annotations

import pytest

from agent_eval_action.llm.client import LlmRequest
from agent_eval_action.llm.providers.openai import Dialect, OpenAiProvider, answer_text

OPTIONS = [
    ({"temperature": 0, "topP": 1, "max_output_tokens": 5, "seed": None}, ""),
    ({"thinking_config": {"thinkingLevel": "HIGH"}}, ""),
    ({"thinking_config": {"thinking_budget": 0}}, "knows only thinking_level"),
    ({"thinking_config": {"thinking_level": "vast"}}, "knows only thinking_level"),
    ({"top_k": 5}, "known are temperature"),
    ({"temperature": "hot"}, "`temperature` must be a number"),
    ({"seed": True}, "`seed` must be a whole number"),
    ({"seed": 1.5}, "`seed` must be a whole number"),
    ({"stop_sequences": "END"}, "`stop_sequences` must be a list"),
    ({"http_options": {}}, "does not exist on OpenAI's wire"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_options(options, said):
    found = OpenAiProvider.check_options(options)
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("url", "length"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://me.openai.azure.com/openai/v1/", "max_completion_tokens"),
        ("http://127.0.0.1:11434/v1", "max_tokens"),
        ("https://evil.example/openai.com", "max_tokens"),
    ],
)
def test_the_name_of_the_largest_length_is_the_hosts(url, length):
    assert Dialect.for_server(url).length == length


@pytest.mark.parametrize(
    ("status", "said", "weaker"),
    [
        (400, {"message": "bad", "param": "response_format"}, Dialect(form="json_object")),
        (422, {"message": "json_schema is not supported"}, Dialect(form="json_object")),
        (400, {"message": "Unsupported parameter: 'max_tokens'"}, Dialect(length="max_completion_tokens")),
        (400, {"message": "temperature"}, None),
        (400, None, None),
        (500, {"message": "response_format crashed"}, None),
        (401, {"message": "response_format"}, None),
    ],
)
def test_what_a_server_does_not_know_is_written_in_another_way(status, said, weaker):
    asked = LlmRequest("openai/m", (), schema={"type": "object"}, options={"max_output_tokens": 5})
    assert Dialect().after(status, said, asked) == weaker
    if weaker:
        assert Dialect().after(status, said, LlmRequest("openai/m", ())) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (' {"a": 1}\n', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('```\n{"a": 1}\n```\n', '{"a": 1}'),
        ('<think>{"a": 2}</think>\n{"a": 1}', '{"a": 1}'),
        ('{"a": "<think>x</think>"}', '{"a": "<think>x</think>"}'),
        ('{"a": "```json\\n1\\n```"}', '{"a": "```json\\n1\\n```"}'),
        ("<think>never ends", "<think>never ends"),
        ("", ""),
    ],
)
def test_an_answers_text(content, text):
    assert answer_text(content) == text
