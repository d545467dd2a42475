"""Which case is which: whatever names are given anew, by digest; the same in any order; never by a guess."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.case_matching import CaseIdentity, match_cases


def suite(*lines: str) -> list[CaseIdentity]:
    """Cases written ``agent/set/case=digest``."""
    found = []
    for line in lines:
        names, digest = line.split("=")
        found.append(CaseIdentity(CaseKey(*names.split("/")), digest))
    return found


def matched(earlier: list[CaseIdentity], current: list[CaseIdentity]) -> dict[str, str]:
    found = match_cases(earlier, current).current_key
    return {"/".join(then): "/".join(now) for then, now in sorted(found.items())}


BASE = suite("bot/s/a=1", "bot/s/b=2", "bot/t/a=3", "helper/s/a=4")


@pytest.mark.parametrize(
    ("current", "renamed"),
    [
        (("bot/s/a=1", "bot/s/b=2", "bot/t/a=3", "helper/s/a=4"), {}),
        (("bot/s/x=1", "bot/s/b=2", "bot/t/a=3", "helper/s/a=4"), {"bot/s/a": "bot/s/x"}),
        (("bot/s/b=1", "bot/s/a=2", "bot/t/a=3", "helper/s/a=4"), {"bot/s/a": "bot/s/b", "bot/s/b": "bot/s/a"}),
        (("bot/u/a=1", "bot/u/b=2", "bot/t/a=3", "helper/s/a=4"), {"bot/s/a": "bot/u/a", "bot/s/b": "bot/u/b"}),
        (
            ("new/s/a=1", "new/s/b=2", "new/t/a=3", "helper/s/a=4"),
            {"bot/s/a": "new/s/a", "bot/s/b": "new/s/b", "bot/t/a": "new/t/a"},
        ),
        # the agents exchange their names
        (
            ("helper/s/a=1", "helper/s/b=2", "helper/t/a=3", "bot/s/a=4"),
            {"bot/s/a": "helper/s/a", "bot/s/b": "helper/s/b", "bot/t/a": "helper/t/a", "helper/s/a": "bot/s/a"},
        ),
        # everything at once, and one agent keeps a case so that its name is still there
        (
            ("bot/v/p=1", "new/v/q=2", "new/v/r=3", "helper/s/a=4"),
            {"bot/s/a": "bot/v/p", "bot/s/b": "new/v/q", "bot/t/a": "new/v/r"},
        ),
    ],
)
def test_a_case_is_followed_by_its_digest(current: tuple[str, ...], renamed: dict[str, str]) -> None:
    same = {"/".join(case.key): "/".join(case.key) for case in BASE}
    assert matched(BASE, suite(*current)) == same | renamed


def test_an_edited_case_is_found_by_its_name_also_in_a_renamed_file_or_agent() -> None:
    assert matched(suite("bot/s/a=1"), suite("bot/s/a=9")) == {"bot/s/a": "bot/s/a"}
    earlier = suite("bot/s/a=1", "bot/s/b=2")
    assert matched(earlier, suite("bot/t/a=1", "bot/t/b=9"))["bot/s/b"] == "bot/t/b"
    assert matched(earlier, suite("new/s/a=1", "new/s/b=9"))["bot/s/b"] == "new/s/b"


def test_a_name_given_to_another_question_does_not_take_the_history_along() -> None:
    found = matched(suite("bot/s/a=1"), suite("bot/s/renamed=1", "bot/s/a=9"))
    assert found == {"bot/s/a": "bot/s/renamed"}


def test_of_copies_the_one_with_the_name_keeps_the_history_and_the_others_are_new() -> None:
    assert matched(suite("bot/s/b=1"), suite("bot/s/a=1", "bot/s/b=1", "bot/s/c=1")) == {"bot/s/b": "bot/s/b"}
    assert matched(suite("bot/s/b=1", "bot/s/c=1"), suite("bot/s/x=1")) == {"bot/s/b": "bot/s/x"}


def test_a_copy_for_another_agent_takes_nothing_from_the_one_that_has_it() -> None:
    assert matched(suite("bot/s/a=1"), suite("bot/s/a=1", "helper/s/a=1")) == {"bot/s/a": "bot/s/a"}


def test_of_equal_cases_the_one_with_the_same_criteria_is_meant() -> None:
    earlier = [
        CaseIdentity(CaseKey("bot", "s", "a"), "1", frozenset("x")),
        CaseIdentity(CaseKey("bot", "t", "a"), "1", frozenset("y")),
    ]
    current = [
        CaseIdentity(CaseKey("bot", "u", "a"), "1", frozenset("y")),
        CaseIdentity(CaseKey("bot", "v", "a"), "1", frozenset("x")),
    ]
    assert matched(earlier, current) == {"bot/s/a": "bot/v/a", "bot/t/a": "bot/u/a"}


def test_two_agents_of_one_suite_that_are_both_renamed_are_not_guessed() -> None:
    earlier = suite("good/s/a=1", "poor/s/a=1")
    found = match_cases(earlier, suite("x/s/a=1", "y/s/a=1"))
    assert found.current_key == {}
    assert found.ambiguous == {CaseKey(name, "s", "a"): ("good", "poor") for name in ("x", "y")}
    # one question that only one of them has says which is which
    told_apart = match_cases([*earlier, *suite("good/s/b=2")], suite("x/s/a=1", "y/s/a=1", "y/s/b=2"))
    assert told_apart.ambiguous == {}
    assert told_apart.current_key[CaseKey("good", "s", "a")] == CaseKey("y", "s", "a")
    assert told_apart.current_key[CaseKey("poor", "s", "a")] == CaseKey("x", "s", "a")


NAMES = st.sampled_from("abc")
KEYS = st.builds(CaseKey, NAMES, NAMES, NAMES)
SUITES = st.dictionaries(KEYS, st.sampled_from("12345"), max_size=12)


@given(SUITES, SUITES, st.randoms())
def test_any_two_suites_match_one_to_one_and_the_same_in_any_order(
    then: dict[CaseKey, str], now: dict[CaseKey, str], random_: random.Random
) -> None:
    earlier = [CaseIdentity(key, digest) for key, digest in then.items()]
    current = [CaseIdentity(key, digest) for key, digest in now.items()]
    found = match_cases(earlier, current)
    assert found.current_key.keys() <= then.keys()
    assert len(set(found.current_key.values())) == len(found.current_key)
    assert set(found.current_key.values()) | found.ambiguous.keys() <= now.keys()
    assert not set(found.current_key.values()) & found.ambiguous.keys()
    random_.shuffle(earlier)
    random_.shuffle(current)
    assert match_cases(earlier, current) == found
    # a case that nobody touched is itself
    for key in then.keys() & now.keys():
        if then[key] == now[key]:
            assert found.current_key[key] == key


@given(st.lists(KEYS, unique=True, max_size=12), st.randoms())
def test_whatever_permutation_of_names_every_case_is_found(keys: list[CaseKey], random_: random.Random) -> None:
    renamed = list(keys)
    random_.shuffle(renamed)
    digests = [str(number) for number in range(len(keys))]
    earlier = [CaseIdentity(key, digest) for key, digest in zip(keys, digests, strict=True)]
    current = [CaseIdentity(key, digest) for key, digest in zip(renamed, digests, strict=True)]
    assert match_cases(earlier, current).current_key == dict(zip(keys, renamed, strict=True))
