root_agent = Agent(
name="x"
