"""Reports to look at in a browser: a golden result with a past on main, and with transcripts beside it."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from agent_eval_action.folders import OutputFolder
from agent_eval_action.reports import Link, ReportInput, results_json
from agent_eval_action.results.decision import MainCase, MainEvent, MainRun, TurnBrief
from agent_eval_action.results.evalset import (
    Content,
    FunctionCall,
    FunctionResponse,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
    Span,
)
from agent_eval_action.results.run_result import Attempt
from agent_eval_action.results.transcripts import Recordings, TranscriptWriter

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
EVENTS = {
    4: (
        MainEvent(kind="model", subject="dice_agent", text="gemini-2 → gemini-3"),
        MainEvent(kind="judge", subject="hallucinations_v1", text="judge gemini-2 → gemini-3"),
    ),
    6: (
        MainEvent(kind="cases", text="roll_then_prime", cases=2),
        MainEvent(kind="accepted", subject="roll", text="meant"),
    ),
}


def report(scenario: str) -> ReportInput:
    """A golden result, with a past on main: the last case fails there since the sixth of eight runs."""
    links = (Link("results", ".agent-eval/out/results.json"), Link("run", "https://ci.example/runs/7"))
    result = results_json.read(GOLDEN / scenario / "results.json")
    assert result.decision is not None
    keys = [(owner.agent, owner.eval_set, case.case) for owner in result.sets for case in owner.cases]
    runs = [
        MainRun(
            commit=f"{number:07x}",
            created_at=f"2026-05-0{number}",
            models=("gemini-2" if number < 4 else "gemini-3",),
            means={row.criterion: 0.88 + number * 7 % 5 / 50 for row in result.decision.criteria},
            cases=len(keys),
            passed=len(keys) - (number > 5),
            tokens=1000 + number,
            seconds=2.5,
            usd=0.25,
            events=EVENTS.get(number, ()),
        )
        for number in range(1, 9)
    ]
    past = [
        MainCase(agent=agent, eval_set=eval_set, case=case, outcomes="ppmppfff" if at == len(keys) - 1 else "pppppppp")
        for at, (agent, eval_set, case) in enumerate(keys)
    ]
    decision = result.decision.model_copy(update={"main_runs": tuple(runs), "main_cases": tuple(past)})
    return ReportInput(result.model_copy(update={"decision": decision}), links, "agent-eval run")


def picture(colour: bytes = b"\x10\x80\xf0") -> bytes:
    """A PNG of one pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")

    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0]))
    return head + chunk(b"IDAT", zlib.compress(b"\0" + colour)) + chunk(b"IEND", b"")


def medium(kind: str, raw: bytes, name: str) -> Part:
    return Part(inline_data={"mime_type": kind, "data": base64.b64encode(raw).decode(), "display_name": name})


def recorded(shown: ReportInput, folder: Path, *answers: Part, text: str = "blue") -> ReportInput:
    """The report with transcripts beside it: calls with times and results, a picture from the user, ``answers``."""
    with TranscriptWriter(OutputFolder.at(folder)) as writer:
        for owner in shown.result.sets:
            for case in owner.cases:
                for made in (*case.attempts, *case.control):
                    turns = tuple(_recorded_turn(turn, answers, text) for turn in made.turns)
                    key = {"agent": owner.agent, "eval_set": owner.eval_set, "case": case.case}
                    writer.append(Attempt(**key, repeat=made.repeat, arm=made.arm, case_digest="d", turns=turns))
    return replace(shown, recordings=Recordings.find(folder))


def _recorded_turn(turn: TurnBrief, answers: tuple[Part, ...], text: str) -> Invocation:
    events, spans = [], [Span(kind="model", name="dice", start=0.1, seconds=0.4, input_tokens=560, output_tokens=52)]
    for at, call in enumerate(turn.calls):
        called = Part(function_call=FunctionCall(id=f"c{at}", name=call.name, args=call.args))
        answered = Part(function_response=FunctionResponse(id=f"c{at}", name=call.name, response={"result": text}))
        events += [InvocationEvent(author="a", content=Content(parts=(part,))) for part in (called, answered)]
        spans.append(Span(kind="tool", name=call.name, start=0.5 + at, seconds=0.004))
        spans.append(Span(kind="wait", start=0.6 + at, seconds=0.3))
    return Invocation(
        user_content=Content(role="user", parts=(Part(text=turn.user), medium("image/png", picture(), "room.png"))),
        final_response=Content(role="model", parts=(Part(text=turn.response), *answers)),
        intermediate_data=InvocationEvents(invocation_events=tuple(events)),
        duration=3.0,
        spans=tuple(spans),
    )


def case_link(agent: str, eval_set: str, case: str, tab: str = "compare") -> str:
    return f"#/case/{quote(agent, '')}/{quote(eval_set, '')}/{quote(case, '')}?tab={tab}"
