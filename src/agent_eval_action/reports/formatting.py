"""Numbers and labels as every output shows them: the comment, the JUnit file, the terminal."""

from __future__ import annotations

import re
import unicodedata

from agent_eval_action.results.decision import ChangeKind, CriterionChange, PairChange, Unit, Verdict
from agent_eval_action.results.run_result import Totals

MINUS = "\N{MINUS SIGN}"
NONE = "–"
_HUGE = 10**15
_TENTHS_BELOW, _MINUTE, _HOUR, _DAY = 10, 60, 3_600, 86_400
KIND_LABELS: dict[ChangeKind, str] = {
    ChangeKind.SAME: "unchanged",
    ChangeKind.BETTER: "better",
    ChangeKind.WORSE: "worse",
    ChangeKind.NEWLY_FAILING: "newly failing",
    ChangeKind.FIXED: "fixed",
    ChangeKind.STILL_FAILING: "still failing",
    ChangeKind.FAILING: "failing",
    ChangeKind.PASSING: "passing",
    ChangeKind.NEW: "new",
    ChangeKind.REMOVED: "removed",
    ChangeKind.CHANGED: "changed definition",
    ChangeKind.ERROR: "error",
    ChangeKind.NOT_APPLICABLE: "not applicable",
    ChangeKind.FLAKY: "flaky",
    ChangeKind.ON_MAIN: "already broken on main",
}

OUTCOME_LABELS: dict[Verdict, str] = {
    Verdict.PASS: "Passed",
    Verdict.FAIL: "Blocked",
    Verdict.INCONCLUSIVE: "Inconclusive",
    Verdict.COLLECTING: "Collecting",
}


def number(value: float | None, unit: Unit) -> str:
    """A criterion's value: ``0.833``, ``1,234 tokens`` without the unit's name, ``1.25 s``, ``$0.0123``."""
    if value is None:
        return NONE
    text = _magnitude(abs(value), unit)
    return f"{MINUS}{text}" if value < 0 and _is_visible(text) else text


def signed(value: float | None, unit: Unit) -> str:
    """A change: with its sign, and without one where it rounds to nothing."""
    if value is None:
        return NONE
    text = _magnitude(abs(value), unit)
    if not _is_visible(text):
        return text
    return f"{MINUS if value < 0 else '+'}{text}"


def interval(row: CriterionChange | PairChange) -> str:
    """The ends of a change's interval: ``+0.05…+0.19``; "" where there is none, or no width to it."""
    if row.interval is None or row.change is None:
        return ""
    low, high = (signed(end, row.unit) for end in row.interval)
    return f"{low}…{high}" if low != high else ""


def change(row: CriterionChange | PairChange) -> str:
    """A change with its interval: ``+0.120 (+0.050…+0.190)``; without one where all cases changed alike."""
    spread = interval(row)
    return f"{signed(row.change, row.unit)}{f' ({spread})' if spread else ''}"


def detectable(row: CriterionChange) -> str:
    """The smallest drop this run could have found: ``0.062``, or that it could have found none."""
    if row.detectable is None:
        return NONE
    if row.baseline is not None and row.detectable > row.baseline:
        return "none, for want of runs"
    return number(row.detectable, row.unit)


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    if value is None:
        return NONE
    return f"{value:,}".replace("-", MINUS) if abs(value) < _HUGE else f"over {_HUGE:,}"


def attempts(totals: Totals) -> str:
    """How many attempts were made and what for: "62 attempts: 50 + 12 re-runs, 6 control"."""
    said = plural(totals.attempts, "attempt")
    if totals.extra:
        said += f": {count(totals.attempts - totals.extra)} + {plural(totals.extra, 're-run')}"
    return f"{said}, {count(totals.control)} control" if totals.control else said


def plural(value: int, noun: str, many: str | None = None) -> str:
    """``1 case``, ``2 cases``, ``1,200 cases``."""
    return f"{count(value)} {noun if value == 1 else many or noun + 's'}"


def percent(part: int, whole: int) -> str:
    """A share in percent, one decimal: 100 % only when it is all, 0 % only when it is none."""
    share = 100 * part / whole if whole else 0.0
    if 0 < part < whole:
        share = min(max(share, 0.1), 99.9)
    return f"{share:.1f} %" if share not in (0.0, 100.0) else f"{share:.0f} %"


def duration(seconds: float) -> str:
    """A span for people: ``0.8 s``, ``34 s``, ``2 min 5 s``, ``1 h 3 min``, ``3 days``."""
    seconds = max(0.0, seconds)
    whole = round(seconds)
    if whole < _TENTHS_BELOW:
        return f"{seconds:.1f} s"
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < 2 * _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{count(whole // _DAY)} days"


def age(seconds: float) -> str:
    """How old something is, coarsely: ``under a minute``, ``20 min``, ``5 h``, ``3 days``."""
    whole = int(seconds)
    if whole < _MINUTE:
        return "under a minute"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    return f"{whole // _HOUR} h" if whole < 2 * _DAY else f"{count(whole // _DAY)} days"


def allowed_change(row: CriterionChange) -> str:
    """``max drop 0.05`` or ``max rise 10 %``; "" without a limit."""
    if row.max_drop is not None:
        return f"max drop {row.max_drop:g}"
    return f"max rise {row.max_rise * 100:g} %" if row.max_rise is not None else ""


def row_limits(row: CriterionChange) -> str:
    """What a criterion has to keep: ``≥ 0.8, max drop 0.05``."""
    return limits(row.unit, row.goal, row.threshold, allowed_change(row))


def limits(unit: Unit, goal: str, threshold: float | None, limit: str = "") -> str:
    """What a pair has to keep: ``≥ 0.8``; ``limit``: and the change it is allowed, in words."""
    sign = "≤" if goal == "minimize" else "≥"
    parts = []
    if threshold is not None:
        parts.append(f"{sign} {threshold:g}" if unit == "score" else f"{sign} {number(threshold, unit)}")
    return ", ".join([*parts, limit] if limit else parts) or NONE


def is_worse(change: float | None, goal: str) -> bool:
    """Whether a change goes the wrong way for this criterion."""
    return change is not None and (change > 0 if goal == "minimize" else change < 0)


def is_better(change: float | None, goal: str) -> bool:
    """Whether a change goes the right way for this criterion."""
    return change is not None and (change < 0 if goal == "minimize" else change > 0)


def by_severity(change: CriterionChange) -> tuple[int, bool, str]:
    """Sort key of the criteria table: what blocks, what broke, what fell, then the rest by name."""
    worse = is_worse(change.change, change.goal)
    rank = {"fail": 0, "error": 1, "advisory": 4, "pass": 3, "not_applicable": 5}[change.status]
    if change.status == "advisory" and (change.failing or worse):
        rank = 2
    return rank, not worse, change.criterion


def pair_text(pair: PairChange) -> str:
    """``0.900 → 0.400`` or as much of it as there is."""
    then = number(pair.baseline.mean, pair.unit) if pair.baseline else NONE
    now = number(pair.current.mean, pair.unit) if pair.current else NONE
    if pair.baseline is None or pair.current is None:
        return then if pair.current is None else now
    return f"{then} → {now}"


def _magnitude(value: float, unit: Unit) -> str:
    if value >= _HUGE:
        return f"{value:.3g}"
    if unit == "tokens":
        return f"{value:,.0f}"
    if unit == "calls":
        return f"{value:,.1f}"
    if unit == "seconds":
        return f"{value:,.2f} s"
    if unit == "usd":
        return f"${value:,.4f}"
    return f"{value:,.3f}"


def _is_visible(text: str) -> bool:
    return any(digit in "123456789" for digit in text)


_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS and their like: titles, hyperlinks
    r"|\x1b[ -/]*[0-~]"
)
# What is neither printable ASCII, nor a letter or sign of the common scripts, is looked at one by one.
_SUSPECT = re.compile(r"[^\n\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff\u0370-\u058f\u3040-\ud7ff\uf900-\ufaff]")
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # emoji and Indic scripts need them
_NONCHARACTER = 0xFFFE  # the last two code points of every plane
_ARABIC_NONCHARACTERS = frozenset(map(chr, range(0xFDD0, 0xFDF0)))
_CUT = "…"


def clean(text: str, limit: int | None = None, *, lines: bool = False) -> str:
    r"""``text`` without escape sequences and control characters; on one line unless ``lines``.

    Bidirectional marks, other invisible format characters and private-use ones are shown as ``\u202e``;
    lone surrogates and noncharacters become U+FFFD. What is longer than ``limit`` characters is cut with an ellipsis.
    """
    if limit is not None and len(text) > 4 * limit:
        text = text[: 4 * limit]
        text += _CUT
    text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _SUSPECT.sub(lambda found: _visible(found.group()), text)
    text = text if lines else " ".join(text.split())
    return text if limit is None or len(text) <= limit else text[: limit - 1].rstrip() + _CUT


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if char == "\t":
        return "    "
    if category in {"Zl", "Zp"} or char == "\x85":
        return "\n"
    if category == "Cc":
        return ""
    if category == "Cs" or ord(char) & _NONCHARACTER == _NONCHARACTER or char in _ARABIC_NONCHARACTERS:
        return "\N{REPLACEMENT CHARACTER}"
    if (category == "Cf" and char not in _JOINERS) or category == "Co":
        return f"\\u{ord(char):04x}"
    return char
