"""Run by google-adk: what its AgentEvaluator makes of a suite. A request has the folder and the arguments."""

# isort: off
from adk_pipe import serve
# isort: on

import asyncio
import contextlib
import io
import os
import sys

from google.adk.evaluation.agent_evaluator import AgentEvaluator


def answer(request):
    """The name and the text of what was raised, both empty where the suite passes."""
    os.chdir(request["folder"])
    os.environ["FLIPS"] = request["flips"]
    sys.path.insert(0, request["folder"])
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            asyncio.run(AgentEvaluator.evaluate(**request["arguments"]))
    except BaseException as error:  # noqa: BLE001 - an answer too
        return {"raised": type(error).__name__, "text": str(error)}
    finally:
        sys.path.remove(request["folder"])
    return {"raised": "", "text": ""}


serve(answer)
