"""Google credentials for an agent: it gets short-lived access tokens, never the file they are made from.

They come from a metadata server like that of a virtual machine, which hands out only access tokens; google-auth reads
its address from GCE_METADATA_HOST. A credential file cannot hold a bare token, and only gcloud reads a token from a
variable (CLOUDSDK_AUTH_ACCESS_TOKEN), which expires within the hour.
"""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading
import warnings
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_WELL_KNOWN: Final = ".config/gcloud/application_default_credentials.json"
_ROOT: Final = "/computeMetadata/v1/"
_ACCOUNT: Final = f"{_ROOT}instance/service-accounts/"
_TEXT, _JSON = "text/plain", "application/json"
_AWS: Final = "urn:ietf:params:aws:token-type:aws4_request"
_LEAST_S: Final = 300.0
"""google-auth asks again when a token has less than 225 seconds left, and must then get a new one."""


class GoogleTokens(ThreadingHTTPServer):
    """A metadata server on the loopback interface that gives one identity's access tokens to some uids.

    ``info``: a credential file, for which google-auth gets tokens in this process. ``environ``: what its clients need.
    """

    daemon_threads = True

    def __init__(self, info: dict[str, Any], environ: Mapping[str, str], uids: frozenset[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._info = info
        self._uids = uids
        self._project = environ.get("GOOGLE_CLOUD_PROJECT") or str(info.get("project_id") or "")
        self._email = str(info.get("client_email") or info.get("service_account_email") or "default")
        self._credentials: Any = None
        self._lock = threading.Lock()
        address = f"127.0.0.1:{self.server_address[1]}"
        # google-auth asks the second first, to find out whether it runs on Google's machines
        self.environ = {"GCE_METADATA_HOST": address, "GCE_METADATA_IP": address, "GCE_METADATA_MTLS_MODE": "none"}
        if quota := info.get("quota_project_id"):
            self.environ["GOOGLE_CLOUD_QUOTA_PROJECT"] = str(quota)
        if self._project:
            self.environ["GOOGLE_CLOUD_PROJECT"] = self._project
        no_proxy = ",".join(filter(None, (environ.get("NO_PROXY") or environ.get("no_proxy"), "127.0.0.1")))
        self.environ |= {"NO_PROXY": no_proxy, "no_proxy": no_proxy}
        threading.Thread(target=self.serve_forever, args=(0.1,), name="google-tokens", daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, request: _Handler) -> tuple[int, str, str]:
        """Return status, content type and text of a metadata server's reply, for the values google-auth needs."""
        host, port = request.client_address[:2]
        if request.headers.get("Metadata-Flavor") != "Google" or uid_of_peer(str(host), port) not in self._uids:
            return 403, _TEXT, "not for you"
        path = urlsplit(request.path).path
        found = {"/": "agent-eval", _ROOT: "agent-eval", f"{_ROOT}universe/universe-domain": "googleapis.com"}
        if self._project:
            found[f"{_ROOT}project/project-id"] = self._project
        if path.startswith(_ACCOUNT):
            path = path.removeprefix(_ACCOUNT).rstrip("/").partition("/")[2]
            if path == "token":
                return self._token()
            if path == "":
                return 200, _JSON, json.dumps({"aliases": ["default"], "email": self._email, "scopes": [_SCOPE]})
            found = {"email": self._email, "scopes": _SCOPE}
        return (200, _TEXT, found[path]) if path in found else (404, _TEXT, "no such value")

    def _token(self) -> tuple[int, str, str]:
        try:
            from google.auth.transport.requests import Request  # noqa: PLC0415 - heavy, needed only with such a file

            with self._lock:
                if self._credentials is None:
                    self._credentials = self._load()
                if not self._credentials.token or self._seconds_left() < _LEAST_S:
                    self._credentials.refresh(Request())
                token, seconds = str(self._credentials.token), max(int(self._seconds_left()), 0)
        except Exception as error:  # noqa: BLE001 - google-auth raises many kinds, and all mean no token
            # without its text: the answer to a token exchange may quote credentials
            return 503, _TEXT, f"no token: {type(error).__name__}"
        return 200, _JSON, json.dumps({"access_token": token, "expires_in": seconds, "token_type": "Bearer"})

    def _load(self) -> Any:
        import google.auth  # noqa: PLC0415 - heavy, needed only with such a file
        from google.auth import aws, identity_pool  # noqa: PLC0415 - the same

        if self._info.get("type") == "external_account":
            # google.auth.default() would also ask Google for the project's name, which we have
            kind: Any = aws if self._info.get("subject_token_type") == _AWS else identity_pool
            return kind.Credentials.from_info(self._info, scopes=[_SCOPE])
        load: Any = google.auth.load_credentials_from_dict
        with warnings.catch_warnings():
            # unlike google.auth.default() it warns of untrusted files; this one is the job's own
            warnings.simplefilter("ignore", DeprecationWarning)
            return load(self._info, scopes=[_SCOPE])[0]

    def _seconds_left(self) -> float:
        expiry = self._credentials.expiry
        if expiry is None:
            return _LEAST_S
        return float((expiry - dt.datetime.now(dt.UTC).replace(tzinfo=None)).total_seconds())


class _Handler(BaseHTTPRequestHandler):
    server: GoogleTokens

    def do_GET(self) -> None:
        status, kind, text = self.server.answer(self)
        self.send_response(status)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library names it
        """Log nothing: an agent must not be able to write into our log."""


def serve_google_tokens(
    environ: Mapping[str, str], uids: frozenset[int], warn: Callable[[str], None]
) -> GoogleTokens | None:
    """Serve tokens of the credential file in use; None if there is none, or (with a warning) it is unreadable."""
    path = credential_file(environ)
    if path is None:
        return None
    try:
        info = dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        warn(f"the Google credentials of {path} are not used for the agent: they cannot be read ({error})")
        return None
    return GoogleTokens(info, environ, uids)


def credential_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file that google-auth would use: the named one, else gcloud's in the home folder."""
    if named := environ.get(_FILE, "").strip():
        return Path(named)
    home = environ.get("HOME", "")
    folder = environ.get("CLOUDSDK_CONFIG", "")
    found = Path(folder) / Path(_WELL_KNOWN).name if folder else Path(home) / _WELL_KNOWN
    return found if (home or folder) and found.is_file() else None


def uid_of_peer(host: str, port: int) -> int | None:
    """Return the uid at the other end of a loopback connection: other users may share the host's network."""
    wanted = f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == wanted:
            return int(fields[7])
    return None
