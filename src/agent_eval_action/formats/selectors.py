"""Parse selectors like ``file.json:case_a,case_b`` and select the cases."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agent_eval_action.diagnostics.reader import YAML_SUFFIXES, did_you_mean, shorten
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.diagnostics.tables import TABLE_SUFFIXES
from agent_eval_action.errors import EvalFileError, UsageError
from agent_eval_action.results.evalset import EvalSet

_LISTED = 10
_QUOTED = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*(?:,|\Z)""", re.DOTALL)


class Selector(NamedTuple):
    """A file or folder, and the ids of selected cases; () means all."""

    path: Path
    case_ids: tuple[str, ...] = ()


def parse_selector(text: str) -> Selector:
    """Split at the colon after the longest existing path, so that names with colons need no quotes.

    Ids are separated by commas; an id with a comma needs ``"`` or ``'`` around it, and a backslash before a quote in
    it. Raises UsageError.
    """
    if not text.strip():
        raise UsageError("an eval file has an empty name", "name a file, a folder, or file.json:case_a,case_b")
    in_bucket = text.startswith("gs://")  # this colon is not a separator
    colons = [index for index, char in enumerate(text) if char == ":" and index > (2 if in_bucket else 0)]
    if ":" not in text or (in_bucket and not colons) or _is_there(text):
        return Selector(Path(text))
    if not colons:
        raise UsageError(f"{text} names no file before the colon", "write file.json:case_a,case_b")
    existing = (at for at in reversed(colons) if _is_there(text[:at]))
    named_like_files = (at for at in colons if text[:at].endswith((".json", *YAML_SUFFIXES, *TABLE_SUFFIXES)))
    split = next(existing, None) or next(named_like_files, colons[0])
    return Selector(Path(text[:split]), tuple(_ids(text[split + 1 :], text)))


def _is_there(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:  # too long for a path: case ids with colons
        return False


def _ids(rest: str, whole: str) -> Iterator[str]:
    while rest.strip():
        if rest.lstrip()[0] in "\"'":
            quoted = _QUOTED.match(rest)
            if not quoted:
                raise UsageError(f"a quoted case id is not closed, or not followed by a comma: {whole}")
            yield re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2])
            rest = rest[quoted.end() :]
        else:
            case_id, _, rest = rest.partition(",")
            if case_id.strip():
                yield case_id


def select_cases(eval_set: EvalSet, case_ids: Sequence[str], file: Path) -> EvalSet:
    """The selected cases in file order. Ids with commas or spaces are found too, since exact ids win.

    Raises EvalFileError, which names the set's ``file``, for unknown and repeated ids.
    """
    if not case_ids:
        return eval_set
    known = {case.eval_id for case in eval_set.eval_cases}
    left, chosen = tuple(case_ids), []
    longest = 1 + max((name.count(",") for name in known), default=0)  # most parts of an id that was split at commas
    while left:
        joined = [",".join(left[:length]) for length in range(min(longest, len(left)), 0, -1)]
        found = next((name for name in joined if name in known or name.strip() in known), None)
        if found is None:
            listed = shortlist(sorted(known), _LISTED, shorten) or "none"
            hint = did_you_mean(left[0].strip(), known) or f"it has {listed}"
            raise EvalFileError(f"{file} has no case {shorten(left[0].strip())}", hint)
        chosen.append(found if found in known else found.strip())
        left = left[len(joined) - joined.index(found) :]
    if repeated := sorted(name for name, times in Counter(chosen).items() if times > 1):
        raise EvalFileError(f"{file}: {', '.join(map(shorten, repeated))} is selected more than once")
    return _only(eval_set, set(chosen))


def match_cases(eval_set: EvalSet, pattern: str) -> EvalSet:
    """The case with the id ``pattern``, else cases it matches (``*``, ``?``, ``[abc]``), else those its parts match.

    Parts are separated by commas. The result may be empty.
    """
    ids = [case.eval_id for case in eval_set.eval_cases]
    wanted = _matching(ids, pattern) or {found for part in pattern.split(",") for found in _matching(ids, part.strip())}
    return _only(eval_set, wanted)


def _matching(ids: Collection[str], pattern: str) -> set[str]:
    return {pattern} if pattern in ids else {name for name in ids if fnmatch.fnmatchcase(name, pattern)}


def _only(eval_set: EvalSet, wanted: set[str]) -> EvalSet:
    cases = tuple(case for case in eval_set.eval_cases if case.eval_id in wanted)
    return eval_set.model_copy(update={"eval_cases": cases})
