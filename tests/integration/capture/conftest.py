"""A project whose agent is a program that does what it is told."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "support/command_program.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    shutil.copy(PROGRAM, tmp_path / "bot/program.py")
    (tmp_path / "bot/.env").write_text("API_KEY=tops3cretvalue\n")
    command = f"command: [{sys.executable}, program.py]"
    no_spans = 'env: {OTEL_SDK_DISABLED: "true"}'  # they would be waited for
    (tmp_path / "agent-eval.yaml").write_text(f"agent: {{path: bot, driver: command, {command}, {no_spans}}}\n")
    return tmp_path
