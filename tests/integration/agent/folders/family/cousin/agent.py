from google.adk.agents import BaseAgent

from ..shared import NAME

root_agent = BaseAgent(name=NAME)
