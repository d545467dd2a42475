from google.adk.agents import BaseAgent

root_agent = BaseAgent(name="dotted")
