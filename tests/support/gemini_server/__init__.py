"""A local server that speaks Gemini's REST, for the real google-genai client (GOOGLE_GEMINI_BASE_URL).

``python -m support.gemini_server --script FILE`` runs it as a process of its own; ``client.running`` does so for
a test or a benchmark.
"""
