"""The ``branch`` store against real repositories with real remotes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_eval_action.baseline.stores import RecordQuery
from agent_eval_action.git.repository import Repository
from support.records import everything, record, store_at
from support.repositories import IDENTITY, environ, fingerprint, repository, run_git

SHA = "c0ffee" + "0" * 34
DATA = "refs/heads/agent-eval-data"
ROOT = Path(__file__).resolve().parents[3]


def test_a_record_is_found_again_and_the_branch_is_an_orphan(origin):
    origin.commit("one")
    store = store_at(origin.clone("work"))
    first = everything(store)
    assert first.records == ()
    assert "no branch agent-eval-data yet" in first.notes[0]
    written = [record(SHA, 1.0), record(SHA, 0.5)]
    for one in written:
        assert store.add(one).stored
    assert everything(store).records == tuple(reversed(written))
    assert everything(store).notes == ()
    roots = run_git(origin.path, "rev-list", "--max-parents=0", DATA).split()
    assert len(roots) == 1
    assert roots[0] not in run_git(origin.path, "rev-list", "main").split()
    assert run_git(origin.path, "rev-list", "--count", DATA) == "2"
    assert set(run_git(origin.path, "ls-tree", "--name-only", DATA).split()) == {
        "README.md",
        "agent-eval.json",
        "records",
    }


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("writers", [6, 20])
def test_writers_at_once_lose_nothing(origin, writers):
    origin.commit("one")
    work = origin.clone("work")
    script = (  # one process that becomes all of them, so that their imports are paid for once
        "import os, sys; from pathlib import Path; from support.records import record, store_at\n"
        "work, shas = Path(sys.argv[1]), sys.argv[2:]\n"
        "for sha in shas:\n"
        "    if os.fork() == 0:\n"
        "        written = store_at(work).add(record(sha))\n"
        "        print(written.note, file=sys.stderr, flush=True)\n"
        "        os._exit(0 if written.stored else 1)\n"
        "sys.exit(any([os.wait()[1] for _ in shas]))\n"
    )
    shas = [f"{number:040x}" for number in range(writers)]
    places = [str(ROOT / "tests"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {**environ(), "PYTHONPATH": os.pathsep.join(place for place in places if place)}
    argv = [sys.executable, "-c", script, str(work), *shas]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert {one.commit for one in everything(store_at(work)).records} == set(shas)


def test_old_records_are_pruned_from_the_branch(origin):
    origin.commit("one")
    store = store_at(origin.clone("work"), keep=3)
    made = [record(f"{number:040x}") for number in range(5)]
    for one in made:
        assert store.add(one).stored
    assert everything(store).records == tuple(reversed(made[2:]))


def test_the_checkout_is_byte_identical_afterwards(origin):
    origin.commit("one")
    work = origin.clone("work", "--depth=1")
    (work / "one.txt").write_text("stashed")
    run_git(work, "stash")
    (work / "one.txt").write_text("edited")
    (work / "staged.txt").write_text("staged")
    run_git(work, "add", "staged.txt")
    (work / "untracked.txt").write_text("untracked")
    before = fingerprint(work)
    store = store_at(work)
    assert store.add(record(SHA)).stored
    assert len(store.records(RecordQuery(ancestors=(SHA,), complete=True)).records) == 1
    assert fingerprint(work) == before


def test_a_remote_that_refuses_is_reported_and_nothing_is_raised(origin):
    origin.commit("one")
    hook = origin.path / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'records are frozen' >&2\nexit 1\n")
    hook.chmod(0o755)
    waits: list[float] = []
    store = store_at(origin.clone("work"))
    refused = type(store)(store.repository, store.remote, store.branch, wait=waits.append).add(record(SHA))
    assert not refused.stored
    assert "was refused" in refused.note
    assert "records are frozen" in refused.note
    assert "contents: write" in refused.note
    assert waits == [], "a refusal is not tried again"


def test_without_a_network_the_records_of_the_clone_are_used(origin):
    origin.commit("one")
    early = store_at(origin.clone("early"))
    assert early.add(record(SHA, 0.25)).stored
    work = origin.clone("work")  # a full clone has every branch
    origin.path.rename(origin.root / "gone.git")
    found = everything(store_at(work))
    assert [one.commit for one in found.records] == [SHA]
    assert "cannot be reached" in found.notes[0]
    assert "the records this clone has" in found.notes[0]
    lost = store_at(work).add(record(SHA))
    assert not lost.stored
    assert "cannot be reached" in lost.note


def test_without_a_network_and_without_records_that_is_reported(origin):
    origin.commit("one")
    work = origin.clone("work", ref="refs/heads/main")
    origin.path.rename(origin.root / "gone.git")
    found = everything(store_at(work))
    assert found.records == ()
    assert "has no records" in found.notes[0]


def test_no_remote_at_all_is_reported(tmp_path):
    run_git(tmp_path, "init", "--quiet")
    store = store_at(tmp_path)
    assert "no remote 'origin'" in everything(store).notes[0]
    assert "no remote 'origin'" in store.add(record(SHA)).note


def test_a_branch_that_is_not_ours_is_left_alone(origin):
    tip = origin.commit("one")
    written = store_at(origin.clone("work"), branch="main").add(record(SHA))
    assert not written.stored
    assert "no branch of records" in written.note
    assert run_git(origin.path, "rev-parse", "main") == tip


def plant(origin, *entries: tuple[str, str, str, str]) -> None:
    """Put entries of any kind beside the records: (mode, kind, object, name)."""
    old = [line for line in run_git(origin.path, "ls-tree", f"{DATA}:records").splitlines() if line]
    lines = [*old, *(f"{mode} {kind} {oid}\t{name}" for mode, kind, oid, name in entries)]
    tree = make(origin, "mktree", "--missing", text="\n".join(lines) + "\n")
    top = [
        line if not line.endswith("\trecords") else f"040000 tree {tree}\trecords"
        for line in run_git(origin.path, "ls-tree", DATA).splitlines()
    ]
    commit = make(origin, "commit-tree", "-m", "planted", make(origin, "mktree", text="\n".join(top) + "\n"))
    run_git(origin.path, "update-ref", DATA, commit)


def make(origin, *args: str, text: str = "") -> str:
    done = subprocess.run(
        ["git", "-C", origin.path, *args],
        input=text,
        text=True,
        check=True,
        capture_output=True,
        env=environ() | IDENTITY,
    )
    return done.stdout.strip()


def named(number: int) -> str:
    return f"20260101T0000{number:02}Z-c0ffee000000-{number:08x}.json"


HOSTILE = {
    "is no JSON": "{",
    "recursion limit": "[" * 100_000,
    "schema version None": '{"records": []}',
    "schema version 99": '{"schema_version": 99}',
    "schema version 1.0": '{"schema_version": 1.0}',
    "schema version True": '{"schema_version": true}',
    "schema version None; this": "[1, 2]",
    "cases.0": '{"schema_version":1,"tool_version":"1","created_at":"x","cases":[{"case":7}]}',
    "is no record: commit": '{"schema_version":1,"tool_version":"1","created_at":"x","commit":"../../etc"}',
    "surprise": '{"schema_version":1,"tool_version":"1","created_at":"x","surprise":1}',
    "end of hex escape": '{"schema_version":1,"tool_version":"\\ud800"}',
}


@pytest.mark.exhaustive(after=5)
@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_record_is_skipped_with_a_note(origin, why):
    origin.commit("one")
    store = store_at(origin.clone("work"))
    good = record(SHA)
    assert store.add(good).stored
    blob = make(origin, "hash-object", "-w", "--stdin", text=HOSTILE[why])
    plant(origin, ("100644", "blob", blob, named(1)))
    found = everything(store)
    assert found.records == (good,)
    assert named(1) in found.notes[0]
    assert why in found.notes[0]


def test_entries_that_are_no_plain_files_are_skipped_and_removed_by_the_next_write(origin):
    tip = origin.commit("one")
    store = store_at(origin.clone("work"))
    good = record(SHA)
    assert store.add(good).stored
    target = make(origin, "hash-object", "-w", "--stdin", text="/etc/passwd")
    plant(
        origin,
        ("120000", "blob", target, named(1)),
        ("160000", "commit", tip, named(2)),
        ("040000", "tree", run_git(origin.path, "rev-parse", f"{tip}^{{tree}}"), named(3)),
        ("100755", "blob", target, named(4)),
        ("100644", "blob", target, "..%2f..%2fescape.json"),
        ("100644", "blob", target, "99991231T235959Z-c0ffee000000-00000000.json"),
        ("100644", "blob", target, "-rf"),
    )
    found = everything(store)
    assert found.records == (good,)
    assert '"-rf" is no record' in found.notes[0]
    assert "and 2 more" in found.notes[0]
    assert store.add(record("1" * 40)).stored
    left = run_git(origin.path, "ls-tree", "--name-only", f"{DATA}:records").split()
    assert [name for name in left if name in {named(1), named(2), named(3), "-rf"} or name.startswith("9999")] == []
    assert len(everything(store).records) == 2


def test_a_huge_record_is_not_even_read(origin, tmp_path):
    origin.commit("one")
    store = store_at(origin.clone("work"))
    assert store.add(record(SHA)).stored
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(33 * 1024 * 1024)
    plant(origin, ("100644", "blob", make(origin, "hash-object", "-w", str(huge)), named(4)))
    assert everything(store).notes == (f"skipped on agent-eval-data: {named(4)} is larger than 32 MB",)


def test_a_records_folder_that_is_a_file_is_no_history(origin):
    origin.commit("one")
    store = store_at(origin.clone("work"))
    assert store.add(record(SHA)).stored
    blob = make(origin, "hash-object", "-w", "--stdin", text="x")
    lines = run_git(origin.path, "ls-tree", DATA).splitlines()
    top = [line if not line.endswith("\trecords") else f"120000 blob {blob}\trecords" for line in lines]
    commit = make(origin, "commit-tree", "-m", "x", make(origin, "mktree", text="\n".join(top) + "\n"))
    run_git(origin.path, "update-ref", DATA, commit)
    assert everything(store).records == ()
    assert store.add(record(SHA)).stored
    assert len(everything(store).records) == 1


def test_nothing_a_hostile_configuration_names_is_run(origin, tmp_path):
    origin.commit("one")
    work = origin.clone("work", "--depth=1")
    trap = tmp_path / "trap.sh"
    sprung = tmp_path / "sprung"
    trap.write_text(f'#!/bin/sh\necho "$0 $@" >> {sprung}\nexit 0\n')
    trap.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-push", "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        (hooks / name).symlink_to(trap)
    settings = {
        "core.fsmonitor": trap,
        "core.hooksPath": hooks,
        "core.sshCommand": trap,
        "core.askPass": trap,
        "core.pager": trap,
        "core.editor": trap,
        "core.gitProxy": trap,
        "core.alternateRefsCommand": trap,
        "core.attributesFile": tmp_path / "attributes",
        "credential.helper": f"!{trap}",
        "diff.external": trap,
        "gpg.program": trap,
        "commit.gpgSign": "true",
        "log.showSignature": "true",
        "filter.trap.clean": trap,
        "filter.trap.smudge": trap,
        "filter.trap.process": trap,
        "remote.origin.uploadpack": trap,
        "remote.origin.receivepack": trap,
        "remote.origin.vcs": "trap",
        "remote.origin.proxy": "http://127.0.0.1:1/",
        "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
        "uploadpack.packObjectsHook": trap,
        "url.ext::sh.insteadOf": "file://",
        "protocol.ext.allow": "always",
        **{f"alias.{name}": f"!{trap}" for name in ("fetch", "push", "rev-list", "cat-file", "init", "mktree")},
    }
    (tmp_path / "attributes").write_text("* filter=trap\n")
    for key, value in settings.items():
        run_git(work, "config", key, str(value))
    store = store_at(work)
    assert store.add(record(SHA)).stored
    assert [one.commit for one in everything(store).records] == [SHA]
    own = repository(work)
    head = own.resolve("HEAD")
    assert own.commit(head) is not None
    assert own.first_parents(head, 10)
    assert not sprung.exists(), sprung.read_text()


def test_an_object_a_partial_clone_lacks_is_not_fetched_by_the_program_its_configuration_names(origin, tmp_path):
    origin.commit("one")
    work = origin.clone("work")
    sprung = tmp_path / "sprung"
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": f"touch {sprung}; false",
    }.items():
        run_git(work, "config", key, value)
    assert repository(work).commit("d" * 40) is None
    assert not sprung.exists()


@pytest.mark.parametrize(
    "url", ["ext::sh -c 'touch sprung'", "fd::3", "-oProxyCommand=x", "foo::bar", "javascript://x", ""]
)
def test_an_address_that_runs_something_is_no_remote(tmp_path, url):
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "config", "remote.origin.url", url)
    assert store_at(tmp_path).remote is None


def test_a_relative_remote_starts_from_the_checkout(origin):
    origin.commit("one")
    work = origin.clone("work")
    run_git(work, "remote", "set-url", "origin", "../origin.git")
    assert store_at(work).add(record(SHA)).stored


def test_no_repository_at_all_is_reported(tmp_path):
    assert Repository(tmp_path, environ()).resolve("HEAD") is None
    assert not store_at(tmp_path).add(record(SHA)).stored
