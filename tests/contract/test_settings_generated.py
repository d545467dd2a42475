"""What is made from code is what the code makes: schemas, inputs of the actions, tables of the docs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.generate import GENERATED, ROOT, outdated


def test_every_generated_file_is_up_to_date():
    assert outdated() == [], "run `make generate`"


@pytest.mark.exhaustive(after=2)
@pytest.mark.parametrize("name", sorted({name for name, _ in GENERATED}))
def test_a_file_that_was_edited_by_hand_is_found_and_put_right(name: str, tmp_path: Path):
    for path, _ in GENERATED:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    copy = tmp_path / name
    before = copy.read_text()
    word = "retries" if name != "schema/results.schema.json" else "criterion"
    word = word if word in before else "threshold" if "threshold" in before else "baseline"
    copy.write_text(before.replace(word, "edited"))
    assert outdated(tmp_path) == [name] * len([path for path, _ in GENERATED if path == name]) or outdated(
        tmp_path
    ) == [name]
    outdated(tmp_path, write=True)
    assert outdated(tmp_path) == []
