"""google-adk's own user simulator and its way from scenarios to cases. Runs in the google-adk 2.13 environment.

One JSON line in: ``{"scenario", "config", "replies", "answers"}`` plays a conversation, in which the model of the user
says ``replies`` (None: nothing) and the agent ``answers``; out come the user's messages, how it ended, and the last
prompt. ``{"file", "session", "ids": true}`` gives the ids of ``adk eval_set add_eval_case``; ``{"set"}`` loads an
eval set by ADK's own manager and gives its cases' ids, prompts and sessions.
"""

import asyncio
import tempfile
from pathlib import Path

import adk_pipe

# isort: split
from click.testing import CliRunner
from google.adk.cli.cli_tools_click import cli_add_eval_case, cli_create_eval_set
from google.adk.evaluation.conversation_scenarios import ConversationScenario
from google.adk.evaluation.local_eval_sets_manager import load_eval_set_from_file
from google.adk.evaluation.simulation.llm_backed_user_simulator import (
    LlmBackedUserSimulator,
    LlmBackedUserSimulatorConfig,
)
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.models.registry import LLMRegistry
from google.genai import types

USER = {"says": iter(()), "asked": []}


class ScriptedUser(BaseLlm):
    """The model of whoever is played next."""

    @classmethod
    def supported_models(cls):
        return ["scripted-user"]

    async def generate_content_async(self, llm_request, stream=False):  # noqa: ARG002 - ADK's signature
        USER["asked"].append("".join(part.text or "" for one in llm_request.contents for part in one.parts))
        said = next(USER["says"])
        parts = [] if said is None else [types.Part(text="hm", thought=True), types.Part(text=said)]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


LLMRegistry.register(ScriptedUser)


def event(author, text):
    return Event(author=author, content=types.Content(role=author, parts=[types.Part(text=text)]))


async def talk(request):
    USER["says"], USER["asked"] = iter(request["replies"]), []
    config = LlmBackedUserSimulatorConfig.model_validate({"model": "scripted-user", **request["config"]})
    scenario = ConversationScenario.model_validate(request["scenario"])
    user = LlmBackedUserSimulator(config=config, conversation_scenario=scenario)
    events, said, answers = [], [], iter(request["answers"])
    while True:
        try:
            following = await user.get_next_user_message(events)
        except RuntimeError:
            return {"said": said, "ended": "error", "asked": USER["asked"]}
        if following.user_message is None:
            return {"said": said, "ended": following.status.value, "asked": USER["asked"]}
        text = following.user_message.parts[0].text
        said.append(text)
        events += [event("user", text), event("agent", next(answers))]


def ids(request):
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder, "clerk")
        agent.mkdir()
        (agent / "scenarios.json").write_text(request["file"], encoding="utf-8")
        (agent / "session.json").write_text(request["session"], encoding="utf-8")
        made = CliRunner().invoke(cli_create_eval_set, [str(agent), "trips"])
        flags = ["--scenarios_file", str(agent / "scenarios.json"), "--session_input_file", str(agent / "session.json")]
        added = CliRunner().invoke(cli_add_eval_case, [str(agent), "trips", *flags])
        if made.exit_code or added.exit_code:
            return {"error": made.output + added.output}
        return loaded(agent / "trips.evalset.json")


def loaded(path):
    found = load_eval_set_from_file(str(path), path.name.removesuffix(".evalset.json"))
    cases = [case.model_dump(mode="json", exclude={"creation_timestamp"}) for case in found.eval_cases]
    return {"id": found.eval_set_id, "cases": cases}


def answer(request):
    if "ids" in request:
        return ids(request)
    return loaded(Path(request["set"])) if "set" in request else asyncio.run(talk(request))


adk_pipe.serve(answer)
