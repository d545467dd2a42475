"""The pipe of a program in the google-adk environment: a JSON line in, a JSON line out, and nothing ADK prints.

Imported before anything of google-adk, whose warnings begin with its import.
"""

import json
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
_ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
sys.stdout = sys.stderr  # whatever ADK prints is not an answer


def say(answer):
    """One line."""
    _ANSWERS.write(json.dumps(answer) + "\n")
    _ANSWERS.flush()


def serve(answer):
    """Answer every line until there are no more; what ADK raises is an answer too."""
    for line in sys.stdin:
        try:
            said = answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - see above
            said = {"error": f"{type(error).__name__}: {error}"}
        say(said)
