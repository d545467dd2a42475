"""What a page shows of transcripts: when calls ran, what tools returned, and media, each once and within a budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from agent_eval_action.reports.formatting import clean
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.recordings import Medium, Recordings, tool_results
from agent_eval_action.results.run_result import AttemptKey, AttemptSummary, CaseKey

MEDIA_BUDGET: Final = 3_000_000
"""Characters of base64 in a page. Media beyond it are named and left out, those of the best cases first."""
_SPANS, _CALLS, _MEDIA, _RESULT = 100, 40, 20, 400


@dataclass
class RecordedDetails:
    """The details of attempts, asked for case by case, the worst first; ``used`` is what its media take of a page."""

    recordings: Recordings | None
    budget: int
    used: int = 0
    _media: dict[str, str] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)

    def turns(self, case: CaseKey, attempt: AttemptSummary) -> list[dict[str, Any]]:
        """What is known of each turn beyond its excerpt."""
        known = self.recordings
        if known is None:
            return []
        return [self._turn(known, turn) for turn in known.turns(AttemptKey(*case, attempt.repeat, attempt.arm))]

    def media_json(self) -> Iterator[str]:
        """The members of the page's JSON that follow its details: media by digest, how many were left out."""
        if not self._media and not self._left_out:
            return
        yield ',"media":{'
        for at, (digest, data) in enumerate(self._media.items()):
            yield f'{"," if at else ""}"{digest}":"{data}"'
        yield f'}},"left_out":{len(self._left_out)}'

    def _turn(self, recordings: Recordings, turn: Invocation) -> dict[str, Any]:
        spans = [
            [span.kind, span.name, span.start, span.seconds, span.input_tokens, span.output_tokens]
            for span in sorted(turn.spans, key=lambda span: span.start)[:_SPANS]
        ]
        results = [clean(text, _RESULT, lines=True) for text in tool_results(turn)[:_CALLS]]
        media = [self._medium(recordings, medium) for medium in islice(recordings.media(turn), _MEDIA)]
        return {
            "seconds": turn.duration,
            **({"spans": spans} if spans else {}),
            **({"results": results} if any(results) else {}),
            **({"media": media} if media else {}),
        }

    def _medium(self, recordings: Recordings, medium: Medium) -> list[Any]:
        if medium.digest and medium.digest not in self._media:
            fits = (medium.size or 0) * 4 // 3 <= self.budget - self.used
            data = recordings.encoded(medium) if fits else None
            if data is None:
                self._left_out.add(medium.digest)
            else:
                self._media[medium.digest] = data
                self.used += len(data)
        return [medium.place, medium.mime_type, medium.name, medium.digest or medium.uri, medium.size]
