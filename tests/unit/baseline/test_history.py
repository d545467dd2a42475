"""Pooling: what is comparable, what starts anew, what was withheld."""

from __future__ import annotations

import datetime as dt
import random

import pytest

from agent_eval_action.baseline.pooling import age_note, pool
from agent_eval_action.baseline.records import baseline_text, from_result, parse_record, record_bytes, record_of
from agent_eval_action.git.repository import Commit
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import Accepted, Record
from agent_eval_action.results.run_result import AgentConditions, Durations, Usage
from support.records import suite_of
from support.results import QUALITY, attempt, broken, case, info, run, simple

A = CaseKey("bot", "set", "a")
B = CaseKey("bot", "set", "b")


def made(number: int, *cases, criteria=(), **given) -> Record:
    """The run of main's commit ``number``."""
    regressed = given.pop("regressed", ())
    accepted = given.pop("accepted", ())
    result = run(*cases, criteria=criteria, **given)
    return record_of(result, Commit(f"{number:040x}", (), 1000 + number), regressed=regressed, accepted=accepted)


def events(*records: Record) -> list[list[tuple[str, str, str, int]]]:
    """What changed with each run of main, oldest first."""
    suite = suite_of(run(simple("a", 1.0), simple("b", 1.0)))
    runs = pool(newest_first(*records), suite).main_runs
    return [[(event.kind, event.subject, event.text, event.cases) for event in one.events] for one in runs]


def newest_first(*records: Record) -> tuple[Record, ...]:
    return tuple(reversed(records))


def scores(history, key=A, criterion=QUALITY):
    return history.pair(key, criterion).scores


def test_scores_of_runs_are_pooled_and_counted():
    records = newest_first(made(1, simple("a", 1.0)), made(2, simple("a", 1.0, 0.5)), made(3, simple("a", 0.5)))
    pair = pool(records).pair(A, QUALITY)
    assert pair.scores == ((0.5, 2), (1.0, 2))
    assert (pair.runs, pair.n, pair.incomparable) == (3, 4, "")
    assert pair.by_run == (((0.5, 1),), ((0.5, 1), (1.0, 1)), ((1.0, 1),))


def test_only_the_last_comparable_runs_count():
    records = newest_first(*(made(number, simple("a", number / 10)) for number in range(6)))
    assert scores(pool(records, last=2)) == ((0.4, 1), (0.5, 1))


def of_agent(number: int, *models: str, adk: str = "2.0.0") -> Record:
    agent = AgentConditions(agent="bot", path="bot", adk_version=adk, models=models)
    return made(number, simple("a", 1.0), agents=(agent,))


def test_a_run_of_main_says_what_changed_with_its_agents():
    found = events(of_agent(1, "flash"), of_agent(2, "flash"), of_agent(3, "pro", adk="2.1.0"), of_agent(4))
    assert found == [
        [],
        [],
        [("model", "bot", "flash → pro", 0), ("adk", "bot", "2.0.0 → 2.1.0", 0)],
        [("model", "bot", "pro → unknown", 0), ("adk", "bot", "2.1.0 → 2.0.0", 0)],
    ]


def test_a_run_of_main_says_which_judge_criterion_and_cases_changed():
    judged = made(1, simple("a", 1.0), criteria=(info(QUALITY, digest="1", judge="flash"),))
    other = made(2, simple("a", 1.0), criteria=(info(QUALITY, digest="2", judge="pro"),))
    strict = made(3, simple("a", 1.0), criteria=(info(QUALITY, digest="3", judge="pro", options={"strict": True}),))
    edited = made(
        4, case("a", attempt({QUALITY: 1.0}), digest="new"), criteria=(info(QUALITY, digest="3", judge="pro"),)
    )
    assert events(judged, other, strict)[1:] == [
        [("judge", QUALITY, "judge flash → pro", 0)],
        [("criterion", QUALITY, "strict none → true", 0)],
    ]
    assert ("cases", "", "a", 1) in events(strict, edited)[1]


def test_a_run_of_main_says_what_was_accepted_with_it_and_once():
    entry = Accepted(id="1", case="a", reason="shorter answers")
    runs = [made(number, simple("a", 1.0), accepted=(entry,) * (number > 1)) for number in (1, 2, 3)]
    assert events(*runs) == [[], [("accepted", "a", "shorter answers", 0)], []]


def test_the_cost_of_a_run_of_main_is_kept_and_older_records_have_none():
    timed = [
        attempt({QUALITY: 1.0}, repeat=number).model_copy(
            update={"usage": Usage(total_tokens=100 * number), "durations": Durations(total=number)}
        )
        for number in (1, 2, 3)
    ]
    record = made(1, case("a", *timed))
    assert record.cost is not None
    assert (record.cost.tokens, record.cost.seconds, record.cost.usd) == (200, 3, None)
    older = Record.model_validate(record.model_dump(exclude={"cost"}))
    old, new = pool((record, older), suite_of(run(simple("a", 1.0)))).main_runs
    assert (old.tokens, new.tokens, new.seconds) == (None, 200, 3)
    assert parse_record(record_bytes(record)) == record
    assert parse_record(record_bytes(older)) == older
    assert '"cost": {"tokens": 200.0, "seconds": 3.0}' in baseline_text(record)
    assert '"cost"' not in baseline_text(older)


def test_main_runs_are_distinguished_case_by_case():
    judged = (info(QUALITY, threshold=0.8),)
    both = made(2, simple("a", 1.0, 0.5), simple("b", 1.0), criteria=judged)
    newest = made(3, simple("a", 0.5), simple("b", 1.0), criteria=judged)
    records = newest_first(made(1, simple("a", 1.0), criteria=judged), both, newest)
    history = pool(records, suite_of(run(simple("a", 1.0), simple("b", 1.0), criteria=judged)))
    assert [run.commit[-1] for run in history.main_runs] == ["1", "2", "3"]
    assert [run.means[QUALITY] for run in history.main_runs] == [1.0, 0.875, 0.75]
    assert [(run.passed, run.cases) for run in history.main_runs] == [(1, 1), (1, 2), (1, 2)]
    assert {case.case: case.outcomes for case in history.main_cases} == {"a": "pmf", "b": "-pp"}


def test_the_newest_commit_and_its_age_are_those_shown():
    history = pool(newest_first(made(1, simple("a", 1.0)), made(2, simple("a", 1.0))))
    assert history.pooled.commit == f"{2:040x}"
    now = dt.datetime.fromisoformat(history.pooled.created_at) + dt.timedelta(days=40)
    assert "40 days old" in age_note(history, now, 30)
    assert history.pooled.commit[:10] in age_note(history, now, 30)
    assert age_note(history, now, 40) is None


def test_an_edited_case_has_no_history_and_says_since_when():
    now = run(case("a", attempt({QUALITY: 1.0}), digest="edited"), simple("b", 1.0))
    history = pool((made(7, simple("a", 1.0), simple("b", 1.0)),), suite_of(now))
    pair = history.pair(A, QUALITY)
    assert (pair.runs, pair.scores) == (0, ())
    assert pair.incomparable == f"the case was edited since commit {f'{7:040x}'[:10]}"
    assert history.pair(B, QUALITY).runs == 1


def test_runs_before_an_edit_that_was_taken_back_count_again():
    edited = case("a", attempt({QUALITY: 0.0}), digest="edited")
    records = newest_first(made(1, simple("a", 1.0)), made(2, edited), made(3, simple("a", 1.0)))
    assert scores(pool(records)) == ((1.0, 2),)


JUDGE = {"judge_model_options": {"judge_model": "gemini-2.5-flash", "num_samples": 5}}
NEW_JUDGE = {"judge_model_options": {"judge_model": "gemini-3-flash", "num_samples": 5}}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"options": JUDGE}, {"options": NEW_JUDGE}, "judge gemini-2.5-flash → gemini-3-flash"),
        ({"options": {"prompt_version": "1"}}, {"options": {"prompt_version": "2"}}, "judge prompt 1 → 2"),
        ({"scoring_version": "1"}, {"scoring_version": "2"}, "scoring version 1 → 2"),
        ({"options": {"match_type": "EXACT"}}, {"options": {"match_type": "IN_ORDER"}}, "match_type EXACT → IN_ORDER"),
        ({"options": {}}, {"options": {"ignore_args": True}}, "ignore_args none → true"),
    ],
)
def test_a_changed_criterion_has_no_history_and_says_what_changed(old, new, said):
    record = made(1, simple("a", 1.0), criteria=[info(digest="old", **old)])
    now = run(simple("a", 1.0), criteria=[info(digest="new", **new)])
    pair = pool((record,), suite_of(now)).pair(A, QUALITY)
    assert (pair.runs, pair.incomparable) == (0, said)


def test_a_moved_threshold_and_another_agent_model_are_no_reason():
    def of(model, threshold, number):
        agents = (AgentConditions(agent="bot", path="bot", models=(model,), packages_digest=model),)
        return made(number, simple("a", 0.7), criteria=[info(threshold=threshold)], agents=agents)

    history = pool(newest_first(of("gemini-2.5-flash", 0.5, 1), of("gemini-3-flash", 0.9, 2)))
    assert history.pair(A, QUALITY).runs == 2
    kept = history.pooled.cases[0].criteria[QUALITY]
    assert (kept.n, kept.passed, kept.threshold) == (2, 0, 0.9), "both runs are held to the newest threshold"


def test_a_new_case_and_a_new_criterion_have_none():
    now = run(simple("a", 1.0), simple("new", 1.0))
    history = pool((made(1, simple("a", 1.0)),), suite_of(now))
    assert history.pair(CaseKey("bot", "set", "new"), QUALITY).incomparable == "main has no scores of it"
    assert history.pair(A, "other").runs == 0


def test_a_regressed_pair_alone_is_withheld():
    record = made(2, simple("a", 0.0), simple("b", 1.0), regressed=[(A, QUALITY)])
    assert [(one.case, one.why) for one in record.withheld] == [("a", "regressed")]
    history = pool(newest_first(made(1, simple("a", 1.0), simple("b", 1.0)), record))
    assert scores(history) == ((1.0, 1),)
    assert scores(history, B) == ((1.0, 2),)


def test_a_pair_without_a_clean_score_is_named_and_not_taken_for_removed():
    record = made(2, case("a", broken()), simple("b", 1.0))
    assert [(one.case, one.why) for one in record.withheld] == [("a", "unmeasured")]
    history = pool(newest_first(made(1, simple("a", 1.0), simple("b", 1.0)), record))
    assert scores(history) == ((1.0, 1),)
    assert A in {one.key for one in history.pooled.cases}


def test_what_main_removed_before_is_not_removed_again():
    records = newest_first(made(1, simple("a", 1.0), simple("b", 1.0)), made(2, simple("a", 1.0)))
    assert {one.case for one in pool(records).pooled.cases} == {"a"}


def test_what_a_narrowed_run_left_out_is_still_there():
    records = newest_first(made(1, simple("a", 1.0), simple("b", 1.0)), made(2, simple("a", 1.0), selection=("a",)))
    assert {one.case for one in pool(records).pooled.cases} == {"a", "b"}
    assert scores(pool(records)) == ((1.0, 2),)


ACCEPTED = Accepted(id="one", case="a", criterion=QUALITY, reason="the tool was renamed")


def test_history_starts_anew_where_an_acceptance_was_merged():
    records = newest_first(
        made(1, simple("a", 1.0), simple("b", 1.0)),
        made(2, simple("a", 0.25), simple("b", 1.0), accepted=[ACCEPTED]),
        made(3, simple("a", 0.5), simple("b", 1.0), accepted=[ACCEPTED]),
    )
    history = pool(records)
    assert scores(history) == ((0.25, 1), (0.5, 1))
    assert history.pair(A, QUALITY).anew == "the tool was renamed"
    assert scores(history, B) == ((1.0, 3),)


def test_an_entry_that_was_cleaned_away_still_marks_its_merge():
    records = newest_first(
        made(1, simple("a", 1.0)), made(2, simple("a", 0.25), accepted=[ACCEPTED]), made(3, simple("a", 0.5))
    )
    assert scores(pool(records)) == ((0.25, 1), (0.5, 1))


def test_the_newest_of_several_acceptances_counts():
    again = ACCEPTED.model_copy(update={"id": "two", "criterion": None, "reason": "renamed again"})
    records = newest_first(
        made(1, simple("a", 1.0)),
        made(2, simple("a", 0.25), accepted=[ACCEPTED]),
        made(3, simple("a", 0.75), accepted=[ACCEPTED, again]),
    )
    assert scores(pool(records)) == ((0.75, 1),)
    assert pool(records).pair(A, QUALITY).anew == "renamed again"


def test_an_acceptance_no_run_shows_yet_leaves_no_history():
    history = pool((made(1, simple("a", 1.0), simple("b", 1.0)),), accepts=[ACCEPTED])
    pair = history.pair(A, QUALITY)
    assert (pair.runs, pair.anew) == (0, "the tool was renamed")
    assert "was accepted" in pair.incomparable
    assert scores(history, B) == ((1.0, 1),)
    assert {one.case for one in history.pooled.cases} == {"b"}


def test_a_file_baseline_is_a_history_of_one_run_and_comes_back_as_it_was():
    baseline = from_result(run(simple("a", 1.0, 0.5), simple("b", 0.25), repeats=2))
    history = pool((baseline,))
    assert history.pooled == baseline
    assert scores(history) == ((0.5, 1), (1.0, 1))


def test_nothing_is_no_history():
    history = pool(())
    assert history.pooled is None
    assert history.pair(A, QUALITY).runs == 0
    assert age_note(history, dt.datetime.now(dt.UTC), 30) is None


def test_pooling_is_the_same_in_any_order_of_cases():
    rng = random.Random(1)  # noqa: S311 - an order, no secret
    names = [f"case{number}" for number in range(50)]

    def records(shuffled):
        found = []
        for number in range(10):
            order = list(names)
            if shuffled:
                rng.shuffle(order)
            found.append(made(number, *(simple(name, (number + len(name)) % 3 / 2) for name in order)))
        return newest_first(*found)

    assert pool(records(True)).pooled == pool(records(False)).pooled
