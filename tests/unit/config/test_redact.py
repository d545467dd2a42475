"""Patterns of what must not be stored: read with their line, and done in time whatever they are."""

from __future__ import annotations

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.errors import ConfigError
from agent_eval_action.results.redaction import REDACTED, Redaction

CARD = r"\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b"


def settings(folder, text="", environ=None, **flags):
    (folder / "agent-eval.yaml").write_text(text or "{}\n")
    return resolve(flags=flags, environ=environ or {}, cwd=folder).settings


def test_a_file_has_one_or_a_list(tmp_path):
    assert settings(tmp_path, "redact: 'a+'\n").redact == ("a+",)
    assert settings(tmp_path, "redact: ['a{2,3}', 'b']\n").redact == ("a{2,3}", "b")


def test_an_input_has_one_a_line_and_commas_are_meant(tmp_path):
    assert settings(tmp_path, environ={"INPUT_REDACT": "a{2,3}\n\n  b c+ \n"}).redact == ("a{2,3}", "b c+")
    assert settings(tmp_path, redact=["a{2,3}", "b"]).redact == ("a{2,3}", "b")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("'('", "missing )"),
        ("'(?=a)b'", "invalid perl operator: (?="),
        (r"'(a)\1'", "invalid escape sequence"),
        ("'a*'", "fits the empty text"),
        ("''", "must be a regular expression"),
        ("7", "must be a regular expression"),
        ("'(a{1000}){1000}'", "invalid repetition size"),
    ],
)
def test_a_pattern_that_is_none_is_refused_with_its_line(tmp_path, pattern, said):
    with pytest.raises(ConfigError) as error:
        settings(tmp_path, f"repeats: 1\nredact:\n  - ok\n  - {pattern}\n")
    assert "agent-eval.yaml:4" in str(error.value)
    assert said in str(error.value)


def test_an_empty_list_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="must not be empty"):
        settings(tmp_path, "redact: []\n")


def rewriting(*patterns):
    redaction = Redaction()
    redaction.hide_matches(patterns)
    return redaction.text


def test_what_fits_is_gone_and_the_rest_is_not():
    rewrite = rewriting(CARD, "(?i)bearer [a-z0-9]+")
    assert rewrite("pay 4111 1111 1111 1111, Bearer abc1, 42") == f"pay {REDACTED}, {REDACTED}, 42"
    assert rewrite("nothing here") == "nothing here"


def test_a_lone_surrogate_hides_nothing():
    assert REDACTED in rewriting(CARD)("\ud800 4111111111111111")


@pytest.mark.timeout(60)
def test_a_pattern_that_would_never_end_elsewhere_is_done_with_a_large_answer():
    """Python's own ``re`` takes longer than the universe has for thirty characters of this."""
    assert rewriting(r"^(a+)+$", r"(x+x+)+y")("a" * 5_000_000 + "!" + "x" * 5_000_000).endswith("xxx")
