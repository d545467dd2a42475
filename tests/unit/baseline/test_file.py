"""The file store: atomic, inside the workspace, and clear about a file that is no baseline."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_eval_action.baseline.records import baseline_text, from_result
from agent_eval_action.baseline.stores import FileStore, RecordQuery
from agent_eval_action.errors import ConfigError, OutputError, ResultsError
from support.results import QUALITY, attempt, calls, case, run, simple

BASELINE = from_result(run(case("a", attempt({QUALITY: 1.0}, calls(("roll", {"sides": 6})))), simple("b", 0.5)))


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def path(workspace):
    return workspace / ".agent-eval" / "baseline.json"


def read(path, *, workspace=None):
    return FileStore(path, workspace).read()


def write(path, record, *, workspace=None):
    FileStore(path, workspace).write(record)


def refused(path, content, workspace=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ResultsError) as caught:
        read(path, workspace=workspace)
    assert caught.value.hint, "every refusal says what to do"
    assert str(path) in str(caught.value)
    return str(caught.value)


def names(folder):
    return sorted(one.name for one in folder.iterdir())


def line_of(found):
    return int(re.search(r"baseline\.json:(\d+)", found).group(1))


def test_what_is_written_is_read_back(path, workspace):
    store = FileStore(path, workspace)
    assert store.read() is None
    assert store.records(RecordQuery()).records == ()
    store.write(BASELINE)
    assert store.read() == BASELINE
    assert path.read_text() == baseline_text(BASELINE)


def test_a_first_baseline_keeps_the_rest_of_its_folder_out_of_git(path, workspace):
    write(path, BASELINE, workspace=workspace)
    (path.parent / "accept.yaml").write_text("[]")
    (path.parent / "out").mkdir()
    (path.parent / "out" / "results.json").write_text("{}")
    subprocess.run(["git", "init", "-q", workspace], check=True)
    listed = subprocess.run(
        ["git", "-C", workspace, "status", "--short", "-uall"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert sorted(word for word in listed if word != "??") == [
        ".agent-eval/.gitignore",
        ".agent-eval/accept.yaml",
        ".agent-eval/baseline.json",
    ]


def test_a_baseline_of_another_name_in_the_folder_is_let_into_git_too(workspace):
    write(workspace / ".agent-eval" / "nightly.json", BASELINE, workspace=workspace)
    subprocess.run(["git", "init", "-q", workspace], check=True)
    ignored = subprocess.run(["git", "-C", workspace, "check-ignore", ".agent-eval/nightly.json"], check=False)
    assert ignored.returncode == 1


def test_a_gitignore_of_the_users_stays(path, workspace):
    path.parent.mkdir()
    (path.parent / ".gitignore").write_text("mine\n")
    write(path, BASELINE, workspace=workspace)
    assert (path.parent / ".gitignore").read_text() == "mine\n"


def test_a_baseline_elsewhere_gets_no_gitignore(workspace):
    write(workspace / "evals" / "main.json", BASELINE, workspace=workspace)
    assert names(workspace / "evals") == ["main.json"]


def test_the_file_is_replaced_whole_and_keeps_its_mode(path, workspace):
    write(path, BASELINE, workspace=workspace)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o664)
    before = path.open()
    write(path, from_result(run()), workspace=workspace)
    assert before.read() == baseline_text(BASELINE), (
        "a reader that had it open sees the old file, not half of the new one"
    )
    before.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
    assert names(path.parent) == [".gitignore", "baseline.json"]


def test_writers_at_once_leave_one_whole_baseline(path, workspace):
    versions = [from_result(run(*(simple(f"c{n}", i / 8) for n in range(200)))) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: write(path, one, workspace=workspace), versions))
    assert read(path, workspace=workspace) in versions
    assert names(path.parent) == [".gitignore", "baseline.json"]


def test_nothing_half_written_stays_when_the_disk_refuses(path, workspace, monkeypatch):
    write(path, BASELINE, workspace=workspace)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        write(path, from_result(run()), workspace=workspace)
    assert read(path, workspace=workspace) == BASELINE
    assert names(path.parent) == [".gitignore", "baseline.json"]


@pytest.mark.parametrize("link", ["file", "folder"])
def test_no_link_leads_out_of_the_workspace(workspace, tmp_path, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "baseline.json").write_text(baseline_text(BASELINE))
    if link == "folder":
        (workspace / "evals").symlink_to(outside)
    else:
        (workspace / "evals").mkdir()
        (workspace / "evals" / "baseline.json").symlink_to(outside / "baseline.json")
    with pytest.raises(ConfigError, match="is a symbolic link"):
        write(workspace / "evals" / "baseline.json", from_result(run()), workspace=workspace)
    assert (outside / "baseline.json").read_text() == baseline_text(BASELINE)
    assert names(outside) == ["baseline.json"]
    with pytest.raises(ResultsError, match="outside the workspace"):
        read(workspace / "evals" / "baseline.json", workspace=workspace)


def test_a_relative_path_stays_inside_the_workspace_too(workspace, tmp_path, monkeypatch):
    alias = tmp_path / "alias"
    alias.symlink_to(workspace)
    (workspace / "out").symlink_to(tmp_path)
    monkeypatch.chdir(workspace)
    with pytest.raises(ConfigError, match="is a symbolic link"):
        write(type(workspace)("out/baseline.json"), BASELINE, workspace=alias)


def test_a_link_inside_the_workspace_is_read_and_not_written_through(workspace):
    (workspace / "evals").mkdir()
    write(workspace / "evals" / "main.json", BASELINE, workspace=workspace)
    link = workspace / "baseline.json"
    link.symlink_to("evals/main.json")
    assert read(link, workspace=workspace) == BASELINE
    with pytest.raises(ConfigError, match="put the file itself there"):
        write(link, from_result(run()), workspace=workspace)
    assert link.is_symlink()
    assert read(workspace / "evals" / "main.json") == BASELINE


def test_a_place_outside_that_the_user_names_is_taken_as_meant(workspace, tmp_path):
    write(tmp_path / "main.json", BASELINE, workspace=workspace)
    assert read(tmp_path / "main.json", workspace=workspace) == BASELINE


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_without_waiting_for_it(workspace, make):
    make(workspace / "baseline.json")
    with pytest.raises(ResultsError, match="not a regular file"):
        read(workspace / "baseline.json", workspace=workspace)


def test_a_dangling_link_is_no_absent_baseline(workspace):
    (workspace / "baseline.json").symlink_to("gone.json")
    with pytest.raises(ResultsError, match="does not exist"):
        read(workspace / "baseline.json", workspace=workspace)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        ("{", "baseline.json:1"),
        (b"\xff\xfe{\x00}\x00", "UTF-16"),
        (b'{"schema_version": "\xff"}', "not UTF-8"),
        ("[]", "no schema_version"),
        ("{}", "no schema_version"),
        ('{"schema_version": "1"}', "not a number"),
        ('{"schema_version": true}', "not a number"),
        ('{"schema_version": 1, "sets": [], "conditions": {}}', "results of a run"),
        ('{"schema_version": 1}', "tool_version"),
        ("[" * 200_000, "baseline.json"),
        ('{"schema_version": 1, "tool_version": "x", "created_at": "y", "repeats": NaN}', "baseline.json:1"),
    ],
)
def test_a_broken_or_foreign_file_is_refused(path, content, said):
    assert said in refused(path, content)


def test_a_newer_schema_names_the_version_that_wrote_it(path):
    found = refused(
        path, baseline_text(BASELINE).replace('"schema_version": 1', '"schema_version": 2').replace("0.1.0", "9.4")
    )
    assert line_of(found) == 2
    assert "reads 1" in found
    assert "9.4" in found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"n": 1', '"n": 2', "count 1 attempts, n says 2"),
        ('"n": 1', '"n": "many"', "many"),
        ('"passed": 1', '"passed": -1', "-1"),
        ("[[1.0, 1]]", "[[1.0, 1, 1]]", "scores"),
        ("[[1.0, 1]]", "[[1e999, 1]]", "baseline.json"),
        ('"criteria"', '"criterions"', "criterions"),
        ('"case": "b"', '"case": "a"', "twice"),
    ],
)
def test_a_wrong_value_is_shown_with_its_line(path, old, new, said):
    whole = baseline_text(BASELINE)
    place = whole.rindex(old)
    found = refused(path, whole[:place] + new + whole[place + len(old) :])
    assert said in found
    if said != "twice":
        assert line_of(found) > 8


def test_the_marks_of_a_merge_conflict_are_named(path):
    lines = baseline_text(BASELINE).splitlines()
    found = refused(path, "\n".join([*lines[:9], "<<<<<<< HEAD", lines[9], "=======", lines[9], ">>>>>>> topic"]))
    assert ":10 is a mark of a merge conflict" in found


def test_a_huge_count_costs_no_memory(path):
    path.parent.mkdir()
    count = 10**15
    first, second = baseline_text(BASELINE).replace('"n": 1', f'"n": {count}').split('"case": "b"')
    first = first.replace("[[1.0, 1]]", f"[[1.0, {count}]]")
    second = second.replace("[[0.5, 1]]", f"[[0.5, {count - 1}], [1.0, 1]]")
    path.write_text(f'{first}"case": "b"{second}')
    record = read(path).cases[1].criteria[QUALITY]
    assert (record.n, record.average) == (count, pytest.approx(0.5))


def test_many_problems_are_shown_as_ten(path):
    document = json.loads(baseline_text(from_result(run(*(simple(f"c{n:02}", 1.0) for n in range(30))))))
    for record in document["records"]:
        record["criteria"][QUALITY]["n"] = 0
    assert refused(path, json.dumps(document)).count("baseline.json:") == 10
