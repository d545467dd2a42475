"""Settings, policy, criteria specs and discovery: what is to be done, resolved once."""
