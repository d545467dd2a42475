"""An artifact is hostile input: what is read of it, and what it is refused for."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import stat
import zipfile
from pathlib import Path

import pytest

from agent_eval_action.errors import ResultsError
from agent_eval_action.reports import results_json
from agent_eval_action.reports.results_json import read_foreign

GOOD = (Path(__file__).parents[2] / "golden" / "passed" / "results.json").read_bytes()


def packed(*entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return file.getvalue()


def zipped(folder: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / "artifact.zip"
    path.write_bytes(packed(*entries, method=method))
    return path


def refused(path: Path, why: str) -> None:
    with pytest.raises(ResultsError, match=why or None) as raised:
        read_foreign(path)
    assert len(str(raised.value)) < 2_000


@pytest.mark.parametrize("name", ["results.json", "out/results.json"])
def test_results_in_a_zip(tmp_path, name):
    path = zipped(tmp_path, ("junit.xml", b"<x/>"), (name, GOOD))
    assert read_foreign(path).decision is not None


def test_results_alone_and_in_a_folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "results.json").write_bytes(GOOD)
    alone = read_foreign(tmp_path / "a" / "b" / "results.json")
    assert read_foreign(tmp_path) == alone == read_foreign(zipped(tmp_path, ("results.json", GOOD)))


@pytest.mark.parametrize("name", ["../results.json", "/results.json", "a/../../x", "..\\x", "C:\\x", "\\x"])
def test_a_path_that_leads_out(tmp_path, name):
    refused(zipped(tmp_path, ("results.json", GOOD), (name, b"x")), "leads out")


def test_a_link_in_a_zip(tmp_path):
    link = zipfile.ZipInfo("results.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    refused(zipped(tmp_path, (link, b"/etc/passwd")), "no regular file")


def test_a_bomb_is_read_to_the_limit_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(results_json, "FOREIGN_BYTES", 1_000_000)
    refused(zipped(tmp_path, ("results.json", b" " * 50_000_000)), "larger than 1,000,000 bytes")


def test_a_bomb_that_lies_about_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(results_json, "FOREIGN_BYTES", 1_000_000)
    data = bytearray(packed(("results.json", b" " * 50_000_000)))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = (100).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(data)
    refused(tmp_path / "a.zip", "")


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((), "no results.json"),
        ((("x.json", GOOD),), "no results.json"),
        ((("a/results.json", GOOD), ("b/results.json", GOOD)), "2 results.json"),
        ((("results.json/", b""),), "no results.json"),
    ],
)
def test_none_or_two(tmp_path, entries, why):
    refused(zipped(tmp_path, *entries), why)


def test_too_many_entries(tmp_path, monkeypatch):
    monkeypatch.setattr(results_json, "MAX_ENTRIES", 3)
    refused(zipped(tmp_path, *((f"{n}", b"") for n in range(4))), "more than 3 entries")


def test_what_is_packed_in_another_way(tmp_path):
    refused(zipped(tmp_path, ("results.json", GOOD), method=zipfile.ZIP_BZIP2), "packed in an unknown way")


def test_what_is_encrypted(tmp_path):
    data = bytearray(packed(("results.json", GOOD)))
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    refused(tmp_path / "a.zip", "encrypted")


@pytest.mark.parametrize("cut", [3, 30, 200, -30])
def test_a_zip_that_is_cut_off(tmp_path, cut):
    (tmp_path / "a.zip").write_bytes(packed(("results.json", GOOD))[:cut])
    refused(tmp_path / "a.zip", "")


def test_a_zip_whose_bytes_are_wrong(tmp_path):
    data = bytearray(packed(("results.json", GOOD)))
    data[60:160] = bytes(100)
    (tmp_path / "a.zip").write_bytes(data)
    refused(tmp_path / "a.zip", "no zip that can be read")


def test_links_and_fifos_are_not_followed(tmp_path):
    real = tmp_path / "secret.json"
    real.write_bytes(GOOD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "results.json").symlink_to(real)
    refused(tmp_path / "folder", "cannot be read")
    (tmp_path / "link.json").symlink_to(real)
    refused(tmp_path / "link.json", "no regular file")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "out").symlink_to(tmp_path / "folder")
    refused(tmp_path / "away", "no results.json")
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", "no regular file")
    refused(tmp_path / "gone", "cannot be read")


def test_a_folder_is_searched_to_a_depth(tmp_path):
    deep = tmp_path.joinpath(*"abcde")
    deep.mkdir(parents=True)
    (deep / "results.json").write_bytes(GOOD)
    refused(tmp_path, "no results.json")


BOMB = b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n"


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", BOMB, b"[" * 200_000, b"{" * 200_000, b'{"sets": ' + b"[" * 100_000, b"\xff\xfe{}", b'{"a":1,"a":2}',
     b"1" * 5_000_000, b'{"schema_version": ' + b"9" * 100_000 + b"}", b'"\\ud800"', b"null"],
    ids=lambda data: repr(data[:12]),
)  # fmt: skip
def test_what_is_no_results_file(tmp_path, data):
    (tmp_path / "results.json").write_bytes(data)
    refused(tmp_path, "")


@pytest.mark.parametrize("value", ["x", 7, [], {"x": 1}, None, True])
@pytest.mark.parametrize("name", ["conditions", "sets", "decision", "totals", "started_at"])
def test_members_of_the_wrong_type(tmp_path, name, value):
    given = json.loads(GOOD) | {name: value}
    (tmp_path / "results.json").write_text(json.dumps(given))
    if (name, value) in [("sets", []), ("decision", None), ("started_at", "x")]:
        read_foreign(tmp_path)
    else:
        refused(tmp_path, "")


def test_a_zip_with_any_bytes_wrong_is_read_or_refused(tmp_path):
    whole, chance = packed(("results.json", GOOD), ("junit.xml", b"<x/>")), random.Random(7)  # noqa: S311 - the same bytes each time
    directory = whole.index(b"PK\x01\x02")
    path = tmp_path / "a.zip"
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(directory if chance.random() < 0.6 else 0, len(data))] = chance.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(ResultsError):
            read_foreign(path)
