"""What google-adk's own stores of eval sets write is found by its id."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.run.loader import Loader, discover_eval_files
from support.bucket_server import Bucket
from support.serving import serving


@pytest.mark.exhaustive
def test_ids_find_what_adk_stored(adk213_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.py").write_text("root_agent = None\n")
    Bucket.objects = {}
    program = Path(__file__).with_name("adk_eval_sets.py")
    with serving(Bucket) as port:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        words = [adk213_python, "-W", "ignore", program, tmp_path, "bkt"]
        subprocess.run(words, env=os.environ, check=True, capture_output=True, timeout=120)
        settings = resolve(flags={}, environ={}, cwd=tmp_path).settings
        for named, case in (
            ("on_disk", "case_on_disk"),
            ("gs://bkt/in_bucket", "case_in_bucket"),
            ("gs://bkt", "case_in_bucket"),
        ):
            (planned,) = Loader(tmp_path).plan(discover_eval_files(settings, [named]), 1).sets
            assert [item.case.eval_id for item in planned.cases] == [case]
