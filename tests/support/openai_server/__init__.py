"""A local server that speaks OpenAI's wire (chat completions), for the real openai SDK (OPENAI_BASE_URL).

``python -m support.openai_server --script FILE`` runs it as a process of its own.
"""
