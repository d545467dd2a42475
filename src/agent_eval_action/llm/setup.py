"""What a provider is made from: the environment and the settings of the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TRY_SECONDS = 60.0


@dataclass(frozen=True)
class Setup:
    """``environ``: the variables judges may use (``credentials.judge_environ``). ``timeout``: seconds of one try.

    ``openai_base_url`` is the configuration's (``llm.openai_base_url``) and wins over the environment's.
    """

    environ: Mapping[str, str] = field(repr=False)  # keys: a repr must not show them
    timeout: float = TRY_SECONDS
    openai_base_url: str = ""

    def value(self, *names: str) -> str:
        """The first of these variables that is set; a secret that is not given to a job arrives as an empty one."""
        return next((value for name in names if (value := self.environ.get(name, "").strip())), "")

    def flag(self, name: str) -> bool | None:
        """A variable as google-genai reads its switches; None where it is not set."""
        value = self.environ.get(name, "").strip().lower()
        return value in ("true", "1") if value else None
