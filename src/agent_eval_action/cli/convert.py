"""``agent-eval convert``: scenarios, or an eval file of an older schema, as an eval set google-adk reads."""

from __future__ import annotations

import json
from pathlib import Path

from agent_eval_action.cli import log
from agent_eval_action.cli.session import print_line
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.errors import ExitCode, UsageError
from agent_eval_action.folders import real_path
from agent_eval_action.formats import load_eval_file
from agent_eval_action.reports.base import write_text
from agent_eval_action.results.evalset import EvalSet

_SUFFIX = ".evalset.json"


def convert_command(file: Path, session_file: Path | None, output: Path | None) -> ExitCode:
    """Write ``file`` as an eval set to ``output``, or to stdout. The same file gives the same text."""
    for path in (file, session_file):
        if path is not None and not path.is_file():
            raise UsageError(f"there is no file {path}")
    anywhere = Path(real_path(file).anchor)  # the files were named by hand
    loaded = load_eval_file(file, workspace=anywhere, session_file=session_file)
    eval_set = loaded.eval_set
    for problem in loaded.warnings:
        print_line(f"warning: {problem}", style="yellow")
    if loaded.format != "adk":  # google-adk finds a set by its file's name
        name = (output or file).name.removesuffix(".json").removesuffix(".evalset").removesuffix(".test")
        eval_set = eval_set.model_copy(update={"eval_set_id": name, "name": None})
    if output is None:
        log.write_data(_text(eval_set))
        return ExitCode.PASS
    write_text(output, [_text(eval_set)])
    hint = "" if output.name.endswith(_SUFFIX) else f" (only *{_SUFFIX} and *.test.json are found by themselves)"
    text = f"{plural(len(eval_set.eval_cases), 'case')} written to {output}{hint}"
    print_line(text)
    return ExitCode.PASS


def _text(eval_set: EvalSet) -> str:
    """What differs from the schema's defaults, in its order."""
    plain = eval_set.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
