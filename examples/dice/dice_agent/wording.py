"""How the rule-based model words its answers."""

from .reading import Request, Step, results_of


def decline(topic: str) -> str:
    """The answer to what the instruction declines."""
    return f"I am sorry, I cannot help with {topic}. I only roll dice and check which numbers are prime."


def answer(asked: Request, rolls: list[Step], checks: list[Step], numbers: list[int]) -> str:
    """Say what the tools said; without a tool, what the model believes."""
    errors = [step.response["error"] for step in rolls if "error" in step.response]
    if errors:
        return " ".join(errors)
    sentences = [f"The {step.response['sides']}-sided die shows {step.response['result']}." for step in rolls]
    if asked.dice and not results_of(rolls):
        sentences.append("I cannot roll dice.")
    if checks:
        primes = {number for step in checks for number in step.response.get("primes", [])}
        sentences += [_prime_sentence(number, prime=number in primes) for number in numbers]
    elif numbers:
        sentences += [_prime_sentence(number, prime=_looks_prime(number)) for number in numbers]
    return " ".join(sentences) or "I can roll dice and check which numbers are prime. What shall I do?"


def _prime_sentence(number: int, *, prime: bool) -> str:
    return f"{number} is prime." if prime else f"{number} is not prime."


def _looks_prime(number: int) -> bool:
    """What a model without a tool would say from memory: plausible, and wrong for 1, 9, 15, 21."""
    return number % 2 == 1
