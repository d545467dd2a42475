"""Scores an answer by the times, prices and cities of the reference that it says, from 0 to 10."""

import re


def _facts(content):
    text = " ".join(part.get("text", "") for part in content["parts"])
    return set(re.findall(r"\d+[:.]\d\d|\b(?:Bern|Basel|Geneva|Zurich)\b", text))


def evaluate(instance):
    expected = _facts(instance["reference"]["response"])
    if not expected:
        return {"score": 10, "explanation": "the reference names no fact"}
    missing = expected - _facts(instance["response"])
    found = len(expected) - len(missing)
    return {"score": 10 * found / len(expected), "explanation": f"missing: {', '.join(sorted(missing)) or 'nothing'}"}
