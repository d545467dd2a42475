"""A local server that speaks Vertex's evaluation service, its token endpoint and the bucket of its metrics.

The real google-cloud-aiplatform reaches it by GOOGLE_VERTEX_BASE_URL, STORAGE_EMULATOR_HOST and a service
account whose ``token_uri`` is here.
"""
