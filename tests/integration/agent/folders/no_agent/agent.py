from google.adk.agents import BaseAgent

my_agent = BaseAgent(name="mine")
