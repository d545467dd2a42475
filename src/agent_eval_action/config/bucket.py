"""Eval files in buckets of Google Cloud Storage, which are fetched into the workspace with the job's credentials.

A store of ``adk eval`` (``--eval_storage_uri``) keeps an eval set at ``AGENT/evals/eval_sets/ID.evalset.json``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_eval_action.config.types import EvalPattern
from agent_eval_action.diagnostics.reader import YAML_SUFFIXES, shorten
from agent_eval_action.diagnostics.tables import MAX_TABLE_BYTES, TABLE_SUFFIXES
from agent_eval_action.errors import EvalFileError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.evalset import EVAL_SUFFIXES

FETCHED: Final = Path(".agent-eval/gs")
"""Where fetched files lie, from the workspace: ``BUCKET/OBJECT``."""

_ADDRESS: Final = re.compile(r"gs:/{1,2}(?P<bucket>[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(?P<name>.*))?", re.DOTALL)
_SETS: Final = "evals/eval_sets"
_SUFFIXES: Final = (".json", *YAML_SUFFIXES, *TABLE_SUFFIXES)
_MOST_OBJECTS: Final = 1000
_SECONDS: Final = 30.0
_INSTALL: Final = "pip install 'agent-eval-action[gcs]'"


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file of the workspace that was fetched. ``agent``: the folder of the agent in whose store it lies, or None."""

    path: Path
    agent: Path | None = None


def is_in_bucket(pattern: str) -> bool:
    """Whether eval files are named by an address of a bucket. A path made of one has a slash less."""
    return pattern.startswith(("gs://", "gs:/"))


def fetch(named: EvalPattern, agents: Sequence[Path], workspace: Path) -> tuple[FetchedFile, ...]:
    """Fetch what an address names, sorted. Raises EvalFileError where it names nothing, or cannot be reached.

    ``gs://bucket/x.evalset.json`` is an object, ``gs://bucket/folder/`` every eval file below, ``gs://bucket`` every
    eval set of these agents in a store of ``adk eval``, and ``gs://bucket/my_set`` the one with this id.
    """
    found = _ADDRESS.fullmatch(named.pattern)
    if found is None:
        raise _refusal(
            named, "is no address of a bucket", "gs://bucket, gs://bucket/my_set or gs://bucket/x.evalset.json"
        )
    bucket, name = found["bucket"], found["name"] or ""
    with _explaining(named):
        client = _client()
        names = dict(_objects(client, bucket, name, agents))
        if not names:
            ours = " or ".join(f"{folder.name}/{_SETS}/" for folder in agents)
            hint = f"a store of adk eval has the agent's eval sets in {ours}" if not name.endswith(_SUFFIXES) else None
            raise _refusal(named, "there is no such eval file", hint)
        if len(names) > _MOST_OBJECTS:
            raise _refusal(named, f"names more than {_MOST_OBJECTS} eval files", "name a folder further down")
        store = OutputFolder(workspace / FETCHED, workspace)
        fetched = []
        for wanted, agent in sorted(names.items()):
            _download(client, bucket, wanted, store)
            fetched.append(FetchedFile(workspace / FETCHED / bucket / wanted, agent))
    return tuple(fetched)


def _objects(client: Any, bucket: str, name: str, agents: Sequence[Path]) -> Iterator[tuple[str, Path | None]]:
    """The objects that are meant, each with the agent in whose store it lies."""
    if name.endswith(_SUFFIXES):
        if client.bucket(bucket).get_blob(name, timeout=_SECONDS, retry=_retry()) is not None:
            yield name, None
    elif name.endswith("/"):
        for found in _listed(client, bucket, name):
            if found.endswith(EVAL_SUFFIXES):
                yield found, None
    else:
        for folder in agents:
            prefix = f"{folder.name}/{_SETS}/"
            for found in _listed(client, bucket, prefix):
                if found == f"{prefix}{name}.evalset.json" or (not name and found.endswith(".evalset.json")):
                    yield found, folder


def _listed(client: Any, bucket: str, prefix: str) -> list[str]:
    listed = client.list_blobs(bucket, prefix=prefix, max_results=_MOST_OBJECTS + 1, timeout=_SECONDS, retry=_retry())
    return [blob.name for blob in listed]


def _download(client: Any, bucket: str, name: str, store: OutputFolder) -> None:
    blob = client.bucket(bucket).get_blob(name, timeout=_SECONDS, retry=_retry())
    if blob is None:
        raise OSError(f"{name} was removed meanwhile")
    if (blob.size or 0) > MAX_TABLE_BYTES:
        raise OSError(f"{name} is larger than {MAX_TABLE_BYTES // (1024 * 1024)} MB")
    with store.replacing(f"{bucket}/{name}", sync=False) as file:
        blob.download_to_file(file, timeout=_SECONDS, retry=_retry())


def _client() -> Any:
    storage = importlib.import_module("google.cloud.storage")  # untyped, slow to import, and rarely used
    # Objects are read without a project; without one here the client asks the machine for it.
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT") or "none")


def _retry() -> Any:
    return importlib.import_module("google.cloud.storage.retry").DEFAULT_RETRY.with_timeout(_SECONDS)


@contextlib.contextmanager
def _explaining(named: EvalPattern) -> Iterator[None]:
    """Raise what Google's client and its transport raise as a problem of the address."""
    try:
        from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound, Unauthorized  # noqa: PLC0415 - slow
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - as above
        from requests import RequestException  # noqa: PLC0415 - as above

        yield
    except ImportError as missing:
        raise _refusal(named, f"needs google-cloud-storage ({missing.name})", _INSTALL) from missing
    except NotFound:
        raise _refusal(named, "there is no such bucket or object", None) from None
    except (Forbidden, Unauthorized, GoogleAuthError) as error:
        hint = "the job needs credentials of Google Cloud that may read the bucket (storage.objects.get and .list)"
        raise _refusal(named, f"may not be read: {_sentence(error)}", hint) from None
    except (GoogleAPIError, RequestException, OSError, ValueError) as error:
        raise _refusal(named, f"cannot be fetched: {_sentence(error)}", None) from None


def _sentence(error: Exception) -> str:
    return shorten(" ".join(str(error).split()), 200).strip('"')


def _refusal(named: EvalPattern, message: str, hint: str | None) -> EvalFileError:
    problem = named.origin.problem(message, value=shorten(named.pattern), hint=hint)
    return EvalFileError("eval files cannot be found", problems=(problem,))
