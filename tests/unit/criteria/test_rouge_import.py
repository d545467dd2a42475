"""The short way to rouge-score's tokenizer: the same words, and NLTK is whole for whoever asks later."""

from __future__ import annotations

import subprocess
import sys

SHORT = "from agent_eval_action.criteria.deterministic.rouge_import import default_tokenizer as d; t = d()"
LONG = "from rouge_score.tokenizers import DefaultTokenizer as D; t = D(use_stemmer=True)"
WORDS = "running flies happily relational conditional rational valenci hesitanci digitizer ties dies skis probate 17x"


def say(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_words_are_those_of_the_whole_import() -> None:
    show = f"; print(t.tokenize({WORDS!r}))"
    assert say(SHORT + show) == say(LONG + show)
    assert "'fli'" in say(SHORT + show)


def test_scipy_is_not_imported_and_nltk_is_whole_afterwards() -> None:
    said = say(
        f"import sys\n{SHORT}\nprint('scipy' in sys.modules, 'nltk' in sys.modules)\n"
        "import nltk\nprint(nltk.stem.SnowballStemmer('english').stem('running'))"
    )
    assert said.split() == ["False", "False", "run"]


def test_threads_that_come_first_together_get_one_tokenizer() -> None:
    code = """
import threading
from agent_eval_action.criteria.deterministic.text import tokenizer
start, made = threading.Barrier(8), []
threads = [threading.Thread(target=lambda: (start.wait(), made.append(tokenizer()))) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(made), len({id(one) for one in made}))
"""
    assert say(code).split() == ["8", "1"]


def test_an_nltk_that_is_there_already_is_used() -> None:
    assert say(f"import nltk\n{SHORT}\nprint(t.tokenize('flies'), nltk.__version__ != '')").split() == [
        "['fli']",
        "True",
    ]
