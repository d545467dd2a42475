"""Read a certificate bundle that root hands to an agent: nothing but certificates, and no file behind a link."""

from __future__ import annotations

import os
import re
import ssl
import stat
from pathlib import Path
from typing import Final

from agent_eval_action.folders import open_below

BUNDLE_VARIABLES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "PIP_CERT",
)
"""Variables that name a file of certificates."""

_MOST_BYTES: Final = 8 << 20
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


def read_certificates(path: Path, workspace: Path) -> bytes | None:
    """The certificates of a PEM file and nothing else of it; None where it has none, or cannot be read.

    A link inside the workspace is not followed, because the change could have brought it along. A link outside,
    such as Debian's and Fedora's in /etc/ssl, is the machine's own.
    """
    try:
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        descriptor = _open(absolute, workspace.resolve())
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
                return None
            certificates = b"\n".join([*_CERTIFICATE.findall(file.read(_MOST_BYTES)), b""])
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates.decode("ascii"))
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return None
    return certificates


def _open(path: Path, workspace: Path) -> int:
    if not path.is_relative_to(workspace):
        path = Path(os.path.realpath(path))
    if path.is_relative_to(workspace):
        return open_below(str(path), str(workspace), os.O_RDONLY | os.O_CLOEXEC)
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
