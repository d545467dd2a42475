"""Own samples of every format and of what is none: each beside what becomes of it, word for word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_eval_action.diagnostics.tables import TABLE_SUFFIXES
from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import FORMATS, case_digest, load_eval_file
from support.eval_files import dump_eval_set

SAMPLES = Path(__file__).with_name("samples")
FILES = sorted(
    path
    for path in SAMPLES.rglob("*")
    if path.suffix in {".json", ".yaml", *TABLE_SUFFIXES}
    and not path.name.endswith(".expected.json")
    and not path.name.startswith("generated-")
)


def outcome(path: Path) -> tuple[str, str]:
    """The suffix of the sidecar and its text."""
    try:
        loaded = load_eval_file(path, workspace=SAMPLES)
    except EvalFileError as error:
        return "error.txt", f"{error}\n"
    value = {
        "format": loaded.format,
        "warnings": [str(one) for one in loaded.warnings],
        "lines": [case.line for case in loaded.eval_set.eval_cases],
        "digests": [case_digest(case) for case in loaded.eval_set.eval_cases],
        "eval_set": dump_eval_set(loaded.eval_set),
    }
    return "expected.json", json.dumps(value, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_sample(path, request, monkeypatch):
    monkeypatch.chdir(path.parent)  # problems show paths from here
    suffix, text = outcome(path)
    sidecar = path.with_name(path.name.removesuffix(".json") + f".{suffix}")
    if request.config.getoption("--update-golden"):
        sidecar.write_text(text)
    assert sidecar.read_text() == text
    if suffix == "expected.json":
        assert json.loads(text)["format"] == path.parent.name


def test_every_format_has_samples_read_and_refused():
    for name in FORMATS:
        assert list((SAMPLES / name).glob("*.expected.json"))
        assert list((SAMPLES / name).glob("*.error.txt"))
