"""The short way to rouge-score's tokenizer: the same words, and NLTK is whole for whoever asks later."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHORT = "from agent_eval_action.criteria.answers import rouge_tokenizer as d; t = d()"
LONG = "from rouge_score.tokenizers import DefaultTokenizer as D; t = D(use_stemmer=True).tokenize"
WORDS = "running flies happily relational conditional rational valenci hesitanci digitizer ties dies skis probate 17x"


def say(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_words_are_those_of_the_whole_import() -> None:
    show = f"; print(t({WORDS!r}))"
    assert say(SHORT + show) == say(LONG + show)
    assert "'fli'" in say(SHORT + show)


@pytest.mark.exhaustive
def test_scipy_is_not_imported_and_nltk_is_whole_afterwards() -> None:
    said = say(
        f"import sys\n{SHORT}\nprint('scipy' in sys.modules, 'nltk' in sys.modules)\n"
        "import nltk\nprint(nltk.stem.SnowballStemmer('english').stem('running'))"
    )
    assert said.split() == ["False", "False", "run"]


def test_threads_that_come_first_together_get_one_tokenizer() -> None:
    code = """
import threading
from agent_eval_action.criteria.answers import tokenizer
start, made = threading.Barrier(8), []
threads = [threading.Thread(target=lambda: (start.wait(), made.append(tokenizer()))) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(made), len({id(one) for one in made}))
"""
    assert say(code).split() == ["8", "1"]


@pytest.mark.exhaustive
def test_an_nltk_that_is_there_already_is_used() -> None:
    assert say(f"import nltk\n{SHORT}\nprint(t('flies'), nltk.__version__ != '')").split() == [
        "['fli']",
        "True",
    ]


@pytest.mark.exhaustive
def test_other_threads_import_meanwhile_and_see_whole_modules() -> None:
    """Threads that fill and empty sys.modules, and some that import NLTK, beside a hundred first imports of ours."""
    code = """
import importlib, sys, threading, types
from agent_eval_action.criteria.answers import rouge_tokenizer

over, failed = threading.Event(), []

def fill(number):
    names = [f"made_{number}_{n}" for n in range(30)]
    while not over.is_set():
        for name in names:
            sys.modules[name] = types.ModuleType(name)
        for name in names:
            del sys.modules[name]

def import_the_whole():
    while not over.is_set():
        try:
            importlib.import_module("nltk.stem").SnowballStemmer
        except Exception as error:
            failed.append(repr(error))
            return

def tokenize():
    for _ in range(100):
        try:
            assert rouge_tokenizer()("flies") == ["fli"]
        except Exception as error:
            failed.append(repr(error))

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=fill, args=(n,)) for n in range(4)]
threads += [threading.Thread(target=import_the_whole)]
workers = [threading.Thread(target=tokenize) for _ in range(4)]
for thread in (*threads, *workers):
    thread.start()
for thread in workers:
    thread.join()
over.set()
for thread in threads:
    thread.join()
print(failed)
"""
    assert say(code).strip() == "[]"
