"""Run in google-adk's environment: what ADK's own evaluation records of agents, as JSON.

``python oracle.py < jobs.json``: a list of [agent folder, [user message of each turn]].
"""

import asyncio
import importlib
import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")  # before google-adk warns of its experimental parts

from google.adk.evaluation.eval_case import Invocation  # noqa: E402 - see above
from google.adk.evaluation.evaluation_generator import EvaluationGenerator  # noqa: E402 - see above
from google.adk.evaluation.simulation.static_user_simulator import StaticUserSimulator  # noqa: E402 - see above
from google.genai import types  # noqa: E402 - see above


async def main(folder, messages):
    sys.path.insert(0, str(folder.parent))
    module = importlib.import_module(folder.name + ".agent")
    app = getattr(module, "app", None)
    turns = [Invocation(user_content=types.Content(role="user", parts=[types.Part(text=text)])) for text in messages]
    found = await EvaluationGenerator._generate_inferences_from_root_agent(
        root_agent=app.root_agent if app else module.root_agent,
        user_simulator=StaticUserSimulator(static_conversation=turns),
        app=app,
    )
    return [one.model_dump(mode="json", exclude_none=True) for one in found]


if __name__ == "__main__":
    json.dump([asyncio.run(main(Path(folder), messages)) for folder, messages in json.load(sys.stdin)], sys.stdout)
