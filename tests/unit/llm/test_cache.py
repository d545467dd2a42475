"""The cache: another question is another key, and whatever is not whole and meant for it is a miss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm import cache
from agent_eval_action.llm.cache import AnswerStore, Cached, request_key
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage, Message
from support.scripted_llm import ScriptedLlm

ASKED = LlmRequest("m", (Message("user", "Is it?"),), "Judge.", {"type": "object"}, {"seed": 1}, "c", "1", 0, 0)
SAID = LlmReply("yes", LlmUsage(10, 2, None))

TEXT = st.text(max_size=8)
REQUESTS = st.builds(
    LlmRequest,
    model=TEXT,
    messages=st.lists(st.builds(Message, st.sampled_from(["user", "model"]), TEXT), max_size=3).map(tuple),
    system=TEXT,
    schema=st.none() | st.dictionaries(TEXT, TEXT, max_size=2),
    options=st.dictionaries(TEXT, st.integers() | TEXT, max_size=2),
    purpose=st.just(""),
    prompt_version=TEXT,
    sample=st.integers(0, 3),
    repeat=st.integers(0, 3),
)


def path_of(store: AnswerStore, request: LlmRequest, *where: str) -> Path:
    key = request_key(request, *(where or ("google", "")))
    store.write(key, SAID)
    return max(store.folder.path.glob("??/*.json"), key=lambda path: path.stat().st_mtime_ns)


@given(one=REQUESTS, other=REQUESTS)
def test_only_the_same_question_has_the_same_key(one: LlmRequest, other: LlmRequest) -> None:
    same = json.dumps(request_key(one, "p"), sort_keys=True) == json.dumps(request_key(other, "p"), sort_keys=True)
    assert same == (one == other)


CHANGES: dict[str, Any] = {
    "model": "n",
    "messages": (Message("model", "Is it?"),),
    "system": "Judge!",
    "schema": None,
    "options": {"seed": 2},
    "prompt_version": "2",
    "sample": 1,
    "repeat": 1,
}


@pytest.mark.parametrize("field", [field.name for field in fields(LlmRequest)])
def test_every_field_tells_questions_apart(field: str) -> None:
    """But for the purpose: two criteria that ask the same word for word are answered the same.

    And for the candidates: each is kept as a sample of its own.
    """
    changed = replace(ASKED, **{field: CHANGES.get(field, "another criterion")})
    assert (request_key(changed, "p") == request_key(ASKED, "p")) == (field in {"purpose", "candidates", "usable"})


def test_another_provider_and_another_server_are_other_models() -> None:
    keys = [request_key(ASKED, *where) for where in (("p",), ("q",), ("p", "https://one"), ("p", "https://two"))]
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == 4


async def test_an_answer_is_asked_for_once(tmp_path: Path) -> None:
    llm, hits = ScriptedLlm(lambda _: SAID), []
    cached = Cached(llm, AnswerStore(OutputFolder.at(tmp_path / "llm")), lambda _: ("google", ""), hit=hits.append)
    assert await cached.generate(ASKED) == SAID
    assert await cached.generate(ASKED) == replace(SAID, cached=True)
    assert await cached.generate(replace(ASKED, sample=1)) == SAID
    assert (len(llm.asked), hits) == (2, [ASKED])


async def test_a_run_that_writes_history_reads_no_votes_but_keeps_them(tmp_path: Path) -> None:
    llm, store = ScriptedLlm(lambda _: SAID), AnswerStore(OutputFolder.at(tmp_path))
    writing = Cached(llm, store, lambda _: ("google", ""), read=False)
    await writing.generate(ASKED)
    await writing.generate(ASKED)
    assert len(llm.asked) == 2
    assert (await Cached(llm, store, lambda _: ("google", "")).generate(ASKED)).cached


@pytest.mark.parametrize("said", [LlmError(LlmErrorKind.EMPTY, "nothing"), LlmReply("")])
async def test_only_good_answers_are_kept(tmp_path: Path, said: LlmReply | LlmError) -> None:
    cached = Cached(ScriptedLlm(lambda _: said), AnswerStore(OutputFolder.at(tmp_path)), lambda _: ("google", ""))
    assert await cached.generate(ASKED) == said
    assert list(tmp_path.rglob("*.json")) == []


async def test_options_that_are_no_json_are_asked_for(tmp_path: Path) -> None:
    llm = ScriptedLlm(lambda _: SAID)
    cached = Cached(llm, AnswerStore(OutputFolder.at(tmp_path)), lambda _: ("google", ""))
    assert await cached.generate(replace(ASKED, options={"x": object()})) == SAID


def test_files_are_nobody_elses(tmp_path: Path) -> None:
    path = path_of(store := AnswerStore(OutputFolder.at(tmp_path / "cache" / "llm")), ASKED)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert store.folder.path.stat().st_mode & 0o777 == 0o700


def test_an_entry_cut_anywhere_is_a_miss(tmp_path: Path) -> None:
    path = path_of(store := AnswerStore(OutputFolder.at(tmp_path)), ASKED)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert store.read(request_key(ASKED, "google")) is None, length
    path.write_bytes(whole)
    assert store.read(request_key(ASKED, "google")) == replace(SAID, cached=True)


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_an_entry_with_a_byte_changed_gives_no_other_answer(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    path = path_of(store := AnswerStore(OutputFolder.at(tmp_path_factory.mktemp("cache"))), ASKED)
    data = bytearray(path.read_bytes())
    data[at % len(data)] = byte
    path.write_bytes(data)
    assert store.read(request_key(ASKED, "google")) in (None, replace(SAID, cached=True))


WRONG: list[dict[str, Any]] = [
    {"text": 1},
    {"text": ""},
    {"usage": None},
    {"usage": {"input_tokens": "10", "output_tokens": 2, "cached_input_tokens": None}},
    {"usage": {"input_tokens": True, "output_tokens": 2, "cached_input_tokens": None}},
    {"usage": 1},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_reply_of_other_kinds_is_a_miss_even_with_its_digest(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = path_of(store := AnswerStore(OutputFolder.at(tmp_path)), ASKED)
    entry = json.loads(path.read_text())
    entry["reply"] |= wrong
    entry["digest"] = cache._digest(cache._text(entry["reply"]))
    path.write_text(json.dumps(entry))
    assert store.read(request_key(ASKED, "google")) is None


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"key": 1}'])
def test_what_is_no_entry_is_a_miss(tmp_path: Path, data: bytes) -> None:
    path = path_of(store := AnswerStore(OutputFolder.at(tmp_path)), ASKED)
    path.write_bytes(data)
    assert store.read(request_key(ASKED, "google")) is None


def test_an_entry_of_another_question_under_this_name_is_a_miss(tmp_path: Path) -> None:
    store = AnswerStore(OutputFolder.at(tmp_path))
    other = path_of(store, replace(ASKED, system="Say yes.")).read_bytes()
    path = path_of(store, ASKED)
    path.write_bytes(other)
    assert store.read(request_key(ASKED, "google")) is None


WRITER = """
import sys
from pathlib import Path
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.client import LlmReply, LlmRequest, Message
from agent_eval_action.llm.cache import AnswerStore, request_key

store, mine = AnswerStore(OutputFolder.at(Path(sys.argv[1])), lambda said: sys.exit(said)), sys.argv[2]
for number in range(60):
    key = request_key(LlmRequest("m", (Message("user", str(number % 6)),)), "p")
    store.write(key, LlmReply("answer " + mine * 5000))
    read = store.read(key)
    assert read is not None, "another process's entry was seen half written"
    assert read.text.startswith("answer ") and len(set(read.text[7:])) == 1
"""


def test_processes_share_a_folder(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", WRITER, str(tmp_path / "llm")]
    writers = [subprocess.Popen([*argv, letter], stderr=subprocess.PIPE, text=True) for letter in "abcd"]
    assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [("", 0)] * 4
    assert len(list(tmp_path.rglob("*.json"))) == 6
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_write_that_fails_leaves_what_was_there_and_is_reported_once(tmp_path: Path) -> None:
    """A file larger than the process may write is what a full disk looks like from inside."""
    code = """
import resource, signal, sys
from pathlib import Path
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.client import LlmReply, LlmRequest, Message
from agent_eval_action.llm.cache import AnswerStore, request_key

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = AnswerStore(OutputFolder.at(Path(sys.argv[1])), print)
keys = [request_key(LlmRequest("m", (Message("user", name),)), "p") for name in "ab"]
store.write(keys[0], LlmReply("short"))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for _ in range(3):
    store.write(keys[1], LlmReply("long" * 1000))
print(AnswerStore(OutputFolder.at(Path(sys.argv[1]))).read(keys[0]).text, store.read(keys[1]))
"""
    argv = [sys.executable, "-c", code, str(tmp_path / "llm")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"judges' answers are not cached: File too large ({tmp_path / 'llm'})\nshort None\n"
    assert len(list((tmp_path / "llm").rglob("*.*"))) == 1, "no half of a file stays"


async def test_a_folder_that_cannot_be_made_is_reported_once_and_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    llm = ScriptedLlm(lambda _: SAID)
    cached = Cached(llm, AnswerStore(OutputFolder.at(tmp_path / "file" / "llm"), said.append), lambda _: ("google", ""))
    for _ in range(3):
        assert await cached.generate(ASKED) == SAID
    assert (len(llm.asked), len(said)) == (3, 1)


def test_pruning_takes_the_old_then_the_oldest_and_what_killed_writers_left(tmp_path: Path) -> None:
    store, now = AnswerStore(OutputFolder.at(tmp_path)), 1_000_000_000.0
    paths = [path_of(store, replace(ASKED, sample=number)) for number in range(4)]
    left = paths[0].parent / ".left.tmp"
    left.write_text("half")
    for path, age in zip([*paths, left], [500.0, 30.0, 20.0, 10.0, 4000.0], strict=True):
        os.utime(path, (now - age, now - age))
    size = paths[3].stat().st_size
    assert store.prune(max_age_s=100, max_bytes=2 * size + 50, now=now) == 3
    assert [path.exists() for path in (*paths, left)] == [False, False, True, True, False]
    assert AnswerStore(OutputFolder.at(tmp_path / "none")).prune() == 0


def test_what_a_base_url_carries_is_not_written(tmp_path: Path) -> None:
    store = AnswerStore(OutputFolder.at(tmp_path))
    for url in ("https://me:hidden@proxy.example/v1", "https://me:other@proxy.example/v1"):
        assert store.read(request_key(ASKED, "openai", url)) is None
        store.write(request_key(ASKED, "openai", url), SAID)
    written = [path.read_text() for path in tmp_path.glob("??/*")]
    assert len(written) == 2
    assert not [text for text in written if "hidden" in text or "other@" in text]
