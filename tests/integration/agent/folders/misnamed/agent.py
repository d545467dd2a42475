root_agent = "a string"
