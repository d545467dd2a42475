"""Eval files in buckets, from a server that speaks Cloud Storage's REST; and eval sets named by their ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import parse_selector
from agent_eval_action.run.loader import Loader, discover_eval_files
from support.bucket_server import Bucket
from support.serving import serving


def eval_set(case: str) -> bytes:
    turn = {"user_content": {"parts": [{"text": "hi"}]}}
    return json.dumps({"eval_set_id": "s", "eval_cases": [{"eval_id": case, "conversation": [turn]}]}).encode()


STORE = "bot/evals/eval_sets"


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    Bucket.objects = {
        f"{STORE}/one.evalset.json": eval_set("a"),
        f"{STORE}/two.evalset.json": eval_set("b"),
        "other/evals/eval_sets/three.evalset.json": eval_set("c"),
        "data/q.csv": b"ask,want\nHi,Hello\n",
    }
    with serving(Bucket) as port:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        yield Bucket.objects


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("bot", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.py").write_text("root_agent = None\n")
    return tmp_path


def cases(project: Path, evals: str = "", *selectors: str) -> dict[str, list[str]]:
    """The cases of each set that would run, by agent and set."""
    if evals:
        (project / "agent-eval.yaml").write_text(f"agent: {{path: bot, evals: {evals}}}\n")
    settings = resolve(flags={}, environ={}, cwd=project).settings
    plan = Loader(project).plan(discover_eval_files(settings, selectors), 1)
    return {f"{found.agent} {found.key}": [item.case.eval_id for item in found.cases] for found in plan.sets}


@pytest.mark.parametrize("address", ["gs://bkt", "gs://bkt/"])
def test_a_bucket_is_the_store_of_adk_eval(project: Path, address: str) -> None:
    assert cases(project, address) == {f"bot bkt/{STORE}/one": ["a"], f"bot bkt/{STORE}/two": ["b"]}


def test_a_set_of_the_store_is_named_by_its_id(project: Path) -> None:
    assert cases(project, "gs://bkt/two") == {f"bot bkt/{STORE}/two": ["b"]}


def test_an_object_is_named_by_its_path(project: Path) -> None:
    assert cases(project, f"gs://bkt/{STORE}/one.evalset.json") == {f"bot bkt/{STORE}/one": ["a"]}


def test_a_folder_is_every_eval_file_below(project: Path) -> None:
    assert cases(project, "gs://bkt/other/") == {"bot bkt/other/evals/eval_sets/three": ["c"]}


def test_a_table_in_a_bucket_has_its_mapping(project: Path) -> None:
    (cases_of_set,) = cases(project, "[{path: gs://bkt/data/q.csv, columns: {prompt: ask, reference: want}}]").values()
    assert len(cases_of_set) == 1


def test_what_is_named_at_the_command_belongs_to_the_agent_whose_store_it_is_in(project: Path) -> None:
    assert cases(project, "", "gs://bkt/one:a") == {f"bot bkt/{STORE}/one": ["a"]}
    assert cases(project, "", "gs://bkt/three") == {"other bkt/other/evals/eval_sets/three": ["c"]}


def test_a_fetched_file_is_the_one_that_is_there_now(project: Path, bucket: dict[str, bytes]) -> None:
    cases(project, "gs://bkt/one")
    bucket[f"{STORE}/one.evalset.json"] = eval_set("new")
    assert cases(project, "gs://bkt/one") == {f"bot bkt/{STORE}/one": ["new"]}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("gs://bkt/four", "there is no such eval file"),
        ("gs://bkt/x.json", "there is no such eval file"),
        ("gs://nowhere/x/", "there is no such bucket or object"),
        ("gs://closed/x/", "may not be read"),
        ("gs://B", "is no address of a bucket"),
    ],
)
def test_what_cannot_be_fetched_is_a_problem_of_the_line_that_names_it(
    project: Path, address: str, message: str
) -> None:
    with pytest.raises(EvalFileError) as error:
        cases(project, address)
    (problem,) = error.value.problems
    assert problem.message.startswith(message)
    assert problem.line == 1


@pytest.mark.parametrize("name", ["x/../../../../escaped.json", "x//y.json"])
def test_an_object_cannot_be_written_beside_the_folder_of_fetched_files(
    project: Path, bucket: dict[str, bytes], name: str
) -> None:
    bucket[name] = eval_set("a")
    with pytest.raises(EvalFileError) as error:
        cases(project, f"gs://bkt/{name}")
    assert error.value.problems[0].message.startswith("cannot be fetched")
    assert not list(project.rglob("escaped.json"))


def test_a_link_of_the_change_is_not_followed(project: Path, tmp_path: Path) -> None:
    (project / ".agent-eval").mkdir()
    (project / ".agent-eval" / "gs").symlink_to(tmp_path / "bot")
    with pytest.raises(EvalFileError):
        cases(project, "gs://bkt/one")
    assert [path.name for path in (project / "bot").iterdir()] == ["agent.py"]


def test_without_credentials_the_problem_says_which_are_needed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(project / "none.json"))
    with pytest.raises(EvalFileError) as error:
        cases(project, "gs://bkt/one")
    assert "storage.objects.get" in (error.value.problems[0].hint or "")


def test_an_eval_set_of_the_agent_is_named_by_its_id(project: Path) -> None:
    (project / "bot" / "mine.evalset.json").write_bytes(eval_set("a"))
    (project / "other" / "mine.evalset.json").write_bytes(eval_set("o"))
    assert cases(project, "[mine]") == {"bot bot/mine": ["a"]}
    assert cases(project, "", "mine:a") == {"bot bot/mine": ["a"]}
    (project / "agent-eval.yaml").unlink()
    assert cases(project, "", "mine") == {"bot bot/mine": ["a"], "other other/mine": ["o"]}


def test_a_folder_wins_over_an_id(project: Path) -> None:
    (project / "bot" / "mine.evalset.json").write_bytes(eval_set("a"))
    (project / "mine").mkdir()
    (project / "mine" / "x.test.json").write_bytes(eval_set("b"))
    assert cases(project, "[mine]") == {"bot mine/x": ["b"]}


@pytest.mark.parametrize(
    ("text", "path", "ids"),
    [
        ("gs://bkt", "gs:/bkt", ()),
        ("gs://bkt/one", "gs:/bkt/one", ()),
        ("gs://bkt/one:a,b", "gs:/bkt/one", ("a", "b")),
        ("gs://bkt/x.json:a:b", "gs:/bkt/x.json", ("a:b",)),
        ("q.csv:a:b", "q.csv", ("a:b",)),
        ("mine:a", "mine", ("a",)),
    ],
)
def test_selectors_of_addresses_and_ids(text: str, path: str, ids: tuple[str, ...]) -> None:
    selector = parse_selector(text)
    assert (str(selector.path), selector.case_ids) == (path, ids)
