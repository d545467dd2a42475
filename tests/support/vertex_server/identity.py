"""A service account of nobody: google-auth signs with its key and asks the local server for tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


@cache
def _private_key() -> str:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - of the extra vertex
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - of the extra vertex

    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return made.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode()


def key_file(folder: Path, url: str) -> Path:
    """A service account's key file whose ``token_uri`` is the server at ``url``."""
    path = folder / "service-account.json"
    account = {
        "type": "service_account",
        "project_id": "project-of-tests",
        "private_key_id": "1",
        "private_key": _private_key(),
        "client_email": "tests@project-of-tests.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{url}/token",
    }
    path.write_text(json.dumps(account))
    return path
