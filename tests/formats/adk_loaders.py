"""Runs in google-adk 2.13's interpreter: loads files by both of ADK's loaders.

Reads one JSON request per line, ``{"path": ...}``; answers ``{"adk_eval": ..., "evaluator": ...}`` per line, each
``{"set": dumped EvalSet}`` or ``{"error": text}``. Or, for ``{"fields": ...}``, google-genai's fields by type.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

from google.adk.evaluation.agent_evaluator import AgentEvaluator  # noqa: E402 - after the warnings are off
from google.adk.evaluation.eval_config import EvalConfig  # noqa: E402 - likewise
from google.adk.evaluation.local_eval_sets_manager import load_eval_set_from_file  # noqa: E402 - likewise

# The list of turns is checked against the criteria; this one asks nothing of it.
LENIENT = EvalConfig(criteria={"safety_v1": 0.5})


def attempt(load, *args):
    try:
        eval_set = load(*args)
        return {"set": json.loads(eval_set.model_dump_json())}
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its answer
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        path = json.loads(line)["path"]
        answer = {
            "adk_eval": attempt(load_eval_set_from_file, path, "the-set"),
            "evaluator": attempt(AgentEvaluator._load_eval_set_from_file, path, LENIENT, {}),
        }
        out.write(json.dumps(answer) + "\n")
        out.flush()


main()
