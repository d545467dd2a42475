"""Makes a checkout of main into a release: both actions take what was published instead of building it.

    python release/pin.py ghcr.io/OWNER/agent-eval-action sha256:DIGEST dist/agent_eval_action-VERSION-py3-none-any.whl

action.yml names the image by version and digest, host/wheel.txt the wheel by version and hash. The version is
pyproject.toml's; a wheel of another one is refused.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path

_BUILT_HERE = re.compile(r"  # In a release: .*\n  image: Dockerfile\n")


def pin(root: Path, image: str, digest: str, wheel: Path) -> str:
    """Rewrite both files. Returns the version; raises ValueError when something does not fit."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    if not re.fullmatch(r"[a-z0-9.-]+(/[a-z0-9._-]+)+", image):
        raise ValueError(f"{image!r} is no name of an image")
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"{digest!r} is no digest of an image")
    if not wheel.name.startswith(f"agent_eval_action-{version}-"):
        raise ValueError(f"{wheel.name} is no wheel of version {version}")
    action = root / "action.yml"
    text, found = _BUILT_HERE.subn(
        f"  image: docker://{image}:{version}@{digest}\n", action.read_text(encoding="utf-8")
    )
    if found != 1:
        raise ValueError("action.yml does not build the image here: is this a release already?")
    action.write_text(text, encoding="utf-8")
    hashed = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (root / "host" / "wheel.txt").write_text(f"agent-eval-action=={version} --hash=sha256:{hashed}\n", encoding="utf-8")
    return version


if __name__ == "__main__":
    pin(Path(__file__).resolve().parents[1], sys.argv[1], sys.argv[2], Path(sys.argv[3]))
