"""results.json: what is written is read back, nothing half-written stays, nothing foreign is believed."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.errors import ExitCode, OutputError, ResultsError
from agent_eval_action.reports import results_json
from agent_eval_action.reports.base import write_text
from agent_eval_action.results.decision import CallBrief, TurnBrief
from agent_eval_action.results.run_result import RunResult

SCHEMA = Path(__file__).resolve().parents[3] / "schema" / "results.schema.json"
Golden = Callable[[str], RunResult]


@pytest.fixture
def written(golden_result: Golden, tmp_path: Path) -> Path:
    path = tmp_path / "results.json"
    results_json.write(path, golden_result("regressed"))
    return path


def refusal(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ResultsError) as raised:
        results_json.read(path)
    return raised.value.message


@pytest.mark.parametrize("name", ["regressed", "hostile", "collecting", "several_agents"])
def test_what_is_written_is_read_back(golden_result: Golden, tmp_path: Path, name: str) -> None:
    result = golden_result(name)
    results_json.write(tmp_path / "a.json", result)
    assert results_json.read(tmp_path / "a.json") == result


def test_the_same_result_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    results_json.write(tmp_path / "again.json", results_json.read(written))
    assert (tmp_path / "again.json").read_bytes() == written.read_bytes()


def test_every_case_and_pair_lies_on_a_line_of_its_own(written: Path) -> None:
    lines = written.read_text().splitlines()
    result = results_json.read(written)
    for case in result.sets[0].cases:
        assert sum(line.lstrip().startswith(f'{{"case":"{case.case}"') for line in lines) == 1
    assert sum('"kind":"newly_failing"' in line for line in lines) == 3


@pytest.mark.parametrize("indent", [None, 0, 4])
def test_any_layout_of_the_same_json_is_read(written: Path, indent: int | None) -> None:
    before = results_json.read(written)
    data = json.loads(written.read_text())
    written.write_text("\ufeff" + json.dumps(data, indent=indent, sort_keys=indent == 4), encoding="utf-8")
    assert results_json.read(written) == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=st.text(st.characters(), max_size=30), number=st.floats())
def test_whatever_an_agent_says_can_be_written_and_read(
    golden_result: Golden, tmp_path: Path, text: str, number: float
) -> None:
    turn = TurnBrief(user=text, response=text, calls=(CallBrief(name=text, args={text: [text, number]}),))
    result = golden_result("passed")
    case = result.sets[0].cases[0].model_copy(update={"case": text, "expected": (turn,)})
    changed = result.model_copy(update={"sets": (result.sets[0].model_copy(update={"cases": (case,)}),)})
    results_json.write(tmp_path / "r.json", changed)
    again = results_json.read(tmp_path / "r.json").sets[0].cases[0]
    assert again.expected[0].response == text.encode("utf-8", "replace").decode()


def test_a_lone_surrogate_does_not_lose_the_results(golden_result: Golden, tmp_path: Path) -> None:
    result = golden_result("passed")
    case = result.sets[0].cases[0].model_copy(update={"expected": (TurnBrief.model_construct(user="a\ud800b"),)})
    changed = result.model_copy(update={"sets": (result.sets[0].model_copy(update={"cases": (case,)}),)})
    results_json.write(tmp_path / "r.json", changed)
    assert results_json.read(tmp_path / "r.json").sets[0].cases[0].expected[0].user == "a?b"


def test_the_schema_file_is_the_code_s_and_the_results_keep_it(golden_result: Golden) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in ("regressed", "inconclusive"):
        data = json.loads("".join(results_json.dump(golden_result(name))))
        validator.validate(data)
    data["sets"][0]["cases"][0]["attempts"] = {}
    assert not validator.is_valid(data)


def test_a_file_cut_off_anywhere_is_refused(written: Path) -> None:
    data = written.read_bytes().rstrip()
    for at in range(0, len(data), 97):
        written.write_bytes(data[:at])
        with pytest.raises(ResultsError):
            results_json.read(written)


HOSTILE: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "not JSON": (lambda _: "hello", "expected a RunResult object"),
    "a list": (lambda _: "[]", "expected a RunResult object"),
    "trailing text": (lambda text: text + "{}", "something follows"),
    "not UTF-8": (lambda text: text.encode().replace(b"roll_then_prime", b"\xff\xfe", 1), "regressed"),
    "unknown field": (lambda text: text.replace('"status"', '"surprise"', 1), "surprise"),
    "member twice": (lambda text: text.replace('"status": "complete"', '"started_at": "x"', 1), "not there yet"),
    "wrong type": (lambda text: text.replace('"line":12', '"line":"twelve"', 1), "line: "),
    "not a number": (lambda text: text.replace('"score":0.0', '"score":NaN', 1), "finite number"),
    "beyond a number": (lambda text: text.replace('"score":0.0', '"score":1e999', 1), "finite number"),
    "a huge number": (lambda text: text.replace('"line":12', '"line":' + "9" * 5000, 1), "out of range"),
    "deep in arguments": (
        lambda text: text.replace('"sides":20', '"sides":' + "[" * 100_000 + "]" * 100_000, 1),
        "nested deeper",
    ),
    "deep at the top": (lambda text: text.replace('"conditions": {', '"conditions": {"a":' * 5000, 1), "nested deeper"),
    "a huge part": (lambda text: text.replace('"sides":20', f'"sides":"{"x" * 9_000_000}"', 1), "one part is larger"),
    "millions of empty cases": (lambda text: text.replace('"cases": [', '"cases": [' + "{}," * 2_000_000, 1), "case: "),
    "sets of another type": (lambda text: text.replace('"sets": [', '"sets": ["x", ', 1), "expected a SetResult"),
    "an endless string": (lambda text: text.replace('"complete"', '"complete', 1), ""),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_with_its_line(written: Path, kind: str) -> None:
    spoil, expected = HOSTILE[kind]
    message = refusal(written, spoil(written.read_text()))
    assert message.startswith(f"{written}:")
    assert len(message) < 1_000
    if expected != "regressed":
        assert expected in message


def test_the_line_named_is_the_line_of_the_fault(written: Path) -> None:
    lines = written.read_text().splitlines()
    at = next(index for index, line in enumerate(lines) if '"line":55' in line)
    lines[at] = lines[at].replace('"line":55', '"line":"fifty-five"')
    assert refusal(written, "\n".join(lines)).startswith(f"{written}:{at + 1}: ")


@pytest.mark.parametrize(("version", "hint"), [(3, "a newer one"), (0, "run the eval sets again")])
def test_another_schema_version_is_named_before_anything_is_validated(written: Path, version: int, hint: str) -> None:
    written.write_text(f'{{"schema_version": {version}, "all": "different"}}')
    with pytest.raises(ResultsError, match=f"schema_version {version}, this version reads 1 and 2") as raised:
        results_json.read(written)
    assert raised.value.hint is not None
    assert hint in raised.value.hint


def test_a_file_beyond_the_limit_is_not_parsed(written: Path) -> None:
    with pytest.raises(ResultsError, match="larger than 100 bytes"):
        results_json.read(written, max_bytes=100)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there are no results at ") as error:
        results_json.read(tmp_path / "nothing.json")
    assert error.value.hint == results_json.RUN_FIRST


def test_writing_needs_no_memory_for_the_whole(large_result: Callable[[int], RunResult], tmp_path: Path) -> None:
    peaks = []
    for n in (500, 5_000):
        result = large_result(n)
        tracemalloc.start()
        results_json.write(tmp_path / f"{n}.json", result)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (tmp_path / "5000.json").stat().st_size > 8_000_000
    assert peaks[1] < 4_000_000
    assert peaks[1] < 1.5 * peaks[0]


MEASURED = """
import re, sys
from pathlib import Path
from agent_eval_action.reports import REPORTS, ReportInput, results_json
result = results_json.read(Path(sys.argv[1]))
report = ReportInput(result)
sizes = [len(REPORTS[name](report, None)) for name in ("junit", "markdown")]
# not ru_maxrss: across an exec it keeps the peak of the process that started this one
print(len(result.sets[0].cases), *sizes, *re.findall(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()))
"""


@pytest.mark.exhaustive
def test_ten_thousand_cases_load_and_render_in_bounded_memory(
    large_result: Callable[[int], RunResult], tmp_path: Path
) -> None:
    results_json.write(tmp_path / "r.json", large_result(10_000))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "r.json")], capture_output=True, text=True, check=True
    )
    cases, junit, markdown, kilobytes = map(int, done.stdout.split())
    assert cases == 10_000
    assert junit > 10_000_000
    assert markdown <= 65_000
    assert kilobytes < 600_000


DISK_FULL = """
import resource, signal, sys
from pathlib import Path
from agent_eval_action.errors import OutputError
from agent_eval_action.reports import results_json
result = results_json.read(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    results_json.write(Path(sys.argv[2]), result)
except OutputError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_old_file_and_no_half_one(written: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / "results.json"
    target.parent.mkdir()
    target.write_text("as it was")
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(written), str(target)], capture_output=True, text=True, check=True
    )
    assert f"{target} cannot be written: File too large" in done.stdout
    assert [path.name for path in target.parent.iterdir()] == ["results.json"]
    assert target.read_text() == "as it was"


def test_an_interrupt_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    def chunks() -> Any:
        yield "x" * 3_000_000
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "results.json", chunks())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_output_error(golden_result: Golden, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written") as raised:
        results_json.write(tmp_path / "file" / "results.json", golden_result("passed"))
    assert raised.value.exit_code is ExitCode.INCONCLUSIVE


def test_a_planted_symlink_is_replaced_and_never_followed(golden_result: Golden, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "results.json").symlink_to(victim)
    results_json.write(tmp_path / "results.json", golden_result("passed"))
    assert victim.read_text() == "precious"
    assert not (tmp_path / "results.json").is_symlink()
