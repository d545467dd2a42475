"""An agent that emits exactly the events the user writes down, as a JSON list."""

import json

from google.adk.agents import BaseAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types


class Player(BaseAgent):
    async def _run_async_impl(self, ctx):
        for said in json.loads(ctx.user_content.parts[0].text):
            fields = {key: said[key] for key in ("partial", "error_code", "turn_complete") if key in said}
            if "parts" in said:
                content = json.dumps({"role": said.get("role", "model"), "parts": said["parts"]})
                fields["content"] = types.Content.model_validate_json(content)
            if "grounding" in said:
                fields["grounding_metadata"] = types.GroundingMetadata.model_validate(said["grounding"])
            if "usage" in said:
                fields["usage_metadata"] = types.GenerateContentResponseUsageMetadata.model_validate(said["usage"])
            if "long_running" in said:
                fields["long_running_tool_ids"] = set(said["long_running"])
            if said.get("skip"):
                fields["actions"] = EventActions(skip_summarization=True)
            yield Event(author=said.get("author", self.name), invocation_id=ctx.invocation_id, **fields)


root_agent = Player(name="player")
