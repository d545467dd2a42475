"""Criteria about an answer's text: exact, similar, containing texts, matching a pattern or a JSON schema, ROUGE-1.

Also the measures that text criteria share: ROUGE-1 for any script, tokenized like ADK 2.13, in linear time; longest
common subsequence and edit distance.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import importlib.util
import json
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from agent_eval_action.criteria.base import RegexPattern, Relaxed, Sample, TurnCriterion, becomes, matches
from agent_eval_action.llm.client import sendable_json
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import ScoreStatus, TurnScore

_LONGEST = 10_000
_SHOWN = 4
_LONGEST_END = 100
_SPACES = re.compile(r"\s+")


class TextRule(AdkModel):
    """How texts are compared: ``ignore_case`` and ``ignore_whitespace`` make more texts equal."""

    ignore_case: bool = False
    ignore_whitespace: bool = False

    def plain(self, text: str) -> str:
        """The text as it is compared."""
        text = _SPACES.sub(" ", text).strip() if self.ignore_whitespace else text
        return text.casefold() if self.ignore_case else text


class AnswerCriterion(TextRule, TurnCriterion):
    """Base of criteria that compare texts."""

    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"ignore_case": becomes(True), "ignore_whitespace": becomes(True)}


class AnswerExactMatch(AnswerCriterion):
    """1 if the answer equals the reference."""

    name: ClassVar[str] = "answer_exact_match"
    needs_reference: ClassVar[bool] = True

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = sample.case.turns[turn].response_text, sample.actual[turn].response_text
        same = self.plain(want) == self.plain(got)
        reason = "as the reference" if same else f"“{excerpt(got, 100)}”, expected “{excerpt(want, 100)}”"
        return TurnScore(turn=turn, score=float(same), reason=reason)


class AnswerSimilarity(AnswerCriterion):
    """1 minus the edit distance of answer and reference, divided by the length of the longer, in characters."""

    name: ClassVar[str] = "answer_similarity"
    needs_reference: ClassVar[bool] = True

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = (self.plain(made.response_text) for made in (sample.case.turns[turn], sample.actual[turn]))
        longest = max(len(want), len(got))
        if longest > _LONGEST:
            return self.unscored(turn, f"a text of more than {_LONGEST} characters is not compared by character")
        score = 1 - edit_distance(want, got) / longest if longest else 1.0
        return TurnScore(turn=turn, score=score, reason=f"“{excerpt(got, 100)}”")


class AnswerContains(AnswerCriterion):
    """The share of ``texts`` that occur in the answer; without ``texts``, whether the turn's reference occurs."""

    name: ClassVar[str] = "answer_contains"

    texts: tuple[str, ...] = ()

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = self.plain(sample.actual[turn].response_text)
        reference = sample.case.turns[turn].response_text if turn < len(sample.case.turns) else ""
        texts = self.texts or ((reference,) if reference else ())
        if not texts:
            return self.unscored(turn, "the case has no reference answer for this turn", ScoreStatus.NOT_APPLICABLE)
        missing = [text for text in texts if self.plain(text) not in answer]
        reason = "; ".join(f"“{excerpt(text, 80)}” is missing" for text in missing[:4]) or "all texts occur"
        return TurnScore(turn=turn, score=1 - len(missing) / len(texts), reason=reason)


class AnswerPattern(TurnCriterion):
    """1 if the pattern (RE2) occurs in the answer."""

    name: ClassVar[str] = "answer_pattern"

    pattern: RegexPattern = Field(min_length=1)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = sample.actual[turn].response_text
        found = matches(self.pattern, answer)
        reason = "the pattern occurs" if found else f"the pattern does not occur in “{excerpt(answer, 100)}”"
        return TurnScore(turn=turn, score=float(found), reason=reason)


def _validator(schema: dict[str, Any]) -> Any:
    """A validator with linear-time patterns that fetches nothing. Raises ValueError for an invalid schema."""
    import jsonschema_rs  # noqa: PLC0415 - only this criterion needs it

    def refuse(address: str) -> Any:
        raise ValueError(f"{address} is not fetched: write it into the schema")

    try:
        return jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=refuse)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"it is no JSON schema: {error.message}") from None


def _checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    _validator(schema)
    return schema


class AnswerJsonSchema(TurnCriterion):
    """1 if the answer is JSON that fits the schema. The schema is inline so that its changes are noticed."""

    name: ClassVar[str] = "answer_json_schema"

    json_schema: Annotated[dict[str, Any], AfterValidator(_checked_schema)]

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = sample.actual[turn].response_text
        try:
            # int() refuses NaN and Infinity, which are no JSON
            value = sendable_json(json.loads(answer, parse_constant=int))
        except (ValueError, RecursionError):
            return TurnScore(turn=turn, score=0.0, reason=f"the answer is no JSON: “{excerpt(answer, 100)}”")
        wrong = []
        for error in islice(_validator(self.json_schema).iter_errors(value), _SHOWN):
            place = ".".join(map(str, error.instance_path))
            message = error.message
            if len(message) > 2 * _LONGEST_END:  # it starts with a value of any length and ends with what is wrong
                message = f"{message[:_LONGEST_END]}…{message[-_LONGEST_END:]}"
            wrong.append((f"{excerpt(place, 80)}: " if place else "") + excerpt(message, 3 * _LONGEST_END))
        return TurnScore(turn=turn, score=float(not wrong), reason="; ".join(wrong) or "as the schema says")


_EXCERPT = 160
_LARGE = 200_000
_CREATION = threading.Lock()


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer()


def tokenizer() -> Tokenizer:
    """The tokenizer of this process; concurrent first calls wait for a single import."""
    with _CREATION:
        return _tokenizer()


class ResponseMatchScore(TurnCriterion):
    """ADK's response_match_score, with ADK's scores."""

    name: ClassVar[str] = "response_match_score"
    needs_reference: ClassVar[bool] = True

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        reference, response = sample.case.turns[turn].response_text, sample.actual[turn].response_text
        if _tokenizer.cache_info().currsize and len(reference) + len(response) < _LARGE:
            precision, recall = rouge_1(reference, response)
        else:  # an import or megabytes of text take seconds: running sessions must not wait
            precision, recall = await asyncio.to_thread(rouge_1, reference, response)
        total = precision + recall
        score = 2 * precision * recall / total if total > 0 else 0.0  # in rouge-score's order of operations
        if not reference:
            reason = "the case has no reference answer for this turn"
        elif not response:
            reason = f"no answer; expected “{excerpt(reference, _EXCERPT)}”"
        elif score >= 1:
            reason = "the words of the reference"
        else:
            expected, actual = excerpt(reference, _EXCERPT), excerpt(response, _EXCERPT)
            reason = f"{score:.2f} of the words shared: expected “{expected}”, got “{actual}”"
        details = {"precision": precision, "recall": recall}
        return TurnScore(turn=turn, score=score, reason=reason, details=details)


def rouge_1(reference: str, response: str) -> tuple[float, float]:
    """Precision and recall of the response's tokens; 0 if either side has none."""
    if response == reference and _ASCII_WORDS.search(reference):
        return 1.0, 1.0
    want = tokenizer().count(reference)
    got = want if response == reference else tokenizer().count(response)
    common = (want & got).total()
    return common / max(got.total(), 1), common / max(want.total(), 1)


_EACH_A_TOKEN = (range(0x4E00, 0xA000), range(0x3040, 0x3100), range(0xAC00, 0xD7B0))
"""Ideographs, kana, hangul."""
_UNSPACED = (range(0x0E00, 0x0F00), range(0x1780, 0x1800), range(0x1000, 0x10A0))
"""Thai and Lao, Khmer, Myanmar: a base character with its marks is a token."""
_WORD_LIMIT = 64
_CHUNK = 65_536
_STEMS_LIMIT = 100_000
_TABLE_LIMIT = 50_000
_ASCII_WORDS = re.compile("[a-z0-9]+")
_LONG_RUN = re.compile(r"[^\w\s\x00-\x7f]{64,}")
_JOINER = "\u034f"  # COMBINING GRAPHEME JOINER: class 0, so it ends a run that normalization sorts


class _Spacing(dict[int, str]):
    """Table for ``str.translate``: maps a character to itself, with spaces if it is a token, or to a space."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        mark = unicodedata.category(char).startswith("M")
        if any(code in block for block in _EACH_A_TOKEN):
            spaced = f" {char} "
        elif any(code in block for block in _UNSPACED):
            spaced = char if mark else f" {char}"
        else:
            spaced = char if mark or char.isalnum() else " "
        if len(self) < _TABLE_LIMIT:  # texts with every code point must not fill the memory
            self[code] = spaced
        return spaced


class Tokenizer:
    """Counts the tokens of a text; ASCII words go through rouge-score's own tokenizer and stemmer."""

    def __init__(self) -> None:
        self._default = rouge_tokenizer()
        self._spacing = _Spacing()
        self._stem = lru_cache(_STEMS_LIMIT)(self._stem_once)

    def count(self, text: str) -> Counter[str]:
        """How often each token occurs."""
        if text.isascii() and len(text) <= _CHUNK:
            found = _ASCII_WORDS.findall(text.lower())
            if len(max(found, key=len, default="")) <= _WORD_LIMIT:
                return Counter(map(self._stem, found))
        words = Counter(_ASCII_WORDS.findall(text.lower()) if text.isascii() else ())
        for chunk in () if text.isascii() else _chunks(text):
            plain = unicodedata.normalize("NFKC", _LONG_RUN.sub(_break_up_marks, chunk)).lower()
            words.update(plain.translate(self._spacing).split())
        counts: Counter[str] = Counter()
        for word, times in words.items():
            counts[self._stem(word) if len(word) <= _WORD_LIMIT else self._stem_once(word)] += times
        return counts

    def _stem_once(self, word: str) -> str:
        return self._default(word)[0] if word.isascii() else word  # rouge-score drops other letters


def _chunks(text: str) -> Iterator[str]:
    """Split a text at spaces into pieces, since normalization can turn one character into eighteen."""
    start = 0
    while start < len(text):
        end = start + _CHUNK
        if end < len(text):
            space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            end = space if space > start else end
        yield text[start:end]
        start = end


def _break_up_marks(run: re.Match[str]) -> str:
    """Break up a run of combining marks: CPython's NFKC sorts n marks in n² steps."""
    text = run.group()
    if not any(map(unicodedata.combining, text)):
        return text
    return _JOINER.join(text[start : start + 30] for start in range(0, len(text), 30))


def rouge_tokenizer() -> Callable[[str], list[str]]:
    """A function like rouge-score's ``DefaultTokenizer(use_stemmer=True).tokenize``.

    It needs one module of NLTK. A normal import of it runs NLTK's ``__init__``, which imports scipy and takes 0.9 s of
    CPU time instead of 0.01 s (docs/criteria.md), so that module is loaded alone. If another version of NLTK does not
    allow that, the normal import is used.
    """
    tokenize = importlib.import_module("rouge_score.tokenize").tokenize
    try:
        porter = _load_without_package("nltk.stem.porter")
    except (ImportError, OSError, AttributeError):
        porter = importlib.import_module("nltk.stem.porter")
    return partial(tokenize, stemmer=porter.PorterStemmer())


def _load_without_package(name: str) -> Any:
    """Load a module, and the modules of its package that it imports, without running the package's ``__init__``.

    They stay out of ``sys.modules``, where other threads expect complete packages.
    """
    package = name.split(".", maxsplit=1)[0]
    found = importlib.util.find_spec(package)
    root = Path(found.origin).parent if found and found.origin else Path()
    loaded: dict[str, ModuleType] = {}

    def load(wanted: str) -> ModuleType:
        if wanted not in loaded:
            path = root.joinpath(*wanted.split(".")[1:]).with_suffix(".py")
            spec = importlib.util.spec_from_file_location(wanted, path)
            if spec is None or spec.loader is None:
                raise ImportError(f"no module {wanted}", name=wanted)
            loaded[wanted] = importlib.util.module_from_spec(spec)
            # an `import` statement calls `__import__` of its own module's builtins
            loaded[wanted].__dict__["__builtins__"] = {**vars(builtins), "__import__": import_}
            spec.loader.exec_module(loaded[wanted])
        return loaded[wanted]

    def import_(wanted: str, *arguments: Any, **named: Any) -> Any:
        if wanted.split(".", maxsplit=1)[0] != package:
            return builtins.__import__(wanted, *arguments, **named)
        if not root.joinpath(*wanted.split(".")[1:]).is_dir():
            return load(wanted)
        names = named.get("fromlist") or arguments[2]  # `from package import module`
        return SimpleNamespace(**{each: load(f"{wanted}.{each}") for each in names})

    return load(name)


def _positions(sequence: Sequence[str]) -> dict[str, int]:
    places: dict[str, bytearray] = {}
    size = len(sequence) // 8 + 1
    for place, item in enumerate(sequence):
        places.setdefault(item, bytearray(size))[place // 8] |= 1 << place % 8
    return {item: int.from_bytes(bits, "little") for item, bits in places.items()}


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence; bit-parallel, one number per row (Hyyrö 2004)."""
    places, whole = _positions(first), (1 << len(first)) - 1
    row = whole
    for item in second:
        hits = row & places.get(item, 0)
        row = ((row + hits) | (row - hits)) & whole
    return len(first) - row.bit_count()


def edit_distance(first: str, second: str) -> int:
    """The Levenshtein distance in code points; bit-parallel, two numbers per column (Myers 1999)."""
    if not first:
        return len(second)
    places, whole, last = _positions(first), (1 << len(first)) - 1, 1 << (len(first) - 1)
    up, down, distance = whole, 0, len(first)
    for char in second:
        equal = places.get(char, 0)
        vertical = equal | down
        horizontal = (((equal & up) + up) ^ up) | equal
        plus, minus = down | (whole & ~(horizontal | up)), up & horizontal
        distance += bool(plus & last) - bool(minus & last)
        plus, minus = ((plus << 1) | 1) & whole, (minus << 1) & whole
        up, down = minus | (whole & ~(vertical | plus)), plus & vertical
    return distance
