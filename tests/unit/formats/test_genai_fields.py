"""The table of google-genai's fields is google-genai's, in our environment and in the oracle's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from agent_eval_action.formats.base import genai_fields

PROGRAM = Path(__file__).parents[2] / "formats" / "genai_types.py"


def fields_of(python: str) -> dict[str, dict[str, str]]:
    done = subprocess.run([python, "-W", "ignore", str(PROGRAM)], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def test_the_table_is_the_one_of_google_adk_213(adk213_python):
    assert fields_of(str(adk213_python)) == genai_fields()


def test_nothing_our_own_google_genai_accepts_is_missing():
    missing = [
        f"{name}.{field}:{kind}"
        for name, fields in fields_of(sys.executable).items()
        for field, kind in fields.items()
        if genai_fields().get(name, {}).get(field) != kind
    ]
    assert not missing
