"""What an agent prints is always read, and kept to a limit."""

from __future__ import annotations

import os
from pathlib import Path

from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.process import OutputLog, OutputReader


def test_two_workers_share_a_limit(tmp_path: Path) -> None:
    log = OutputLog(OutputFolder.at(tmp_path / "logs"), "agent.log", 10)
    drains = []
    for text in (b"\x1b[31mred\xff", b"0123456789"):
        read, write = os.pipe()
        drain = OutputReader(read, log)
        drain.start()
        os.write(write, text)
        os.close(write)
        drain.finish()
        drains.append(drain)
    log.close()
    assert drains[0].tail() == "\x1b[31mred\ufffd"
    assert drains[1].tail() == "0123456789"
    kept = (tmp_path / "logs" / "agent.log").read_bytes()
    assert kept.startswith(b"\x1b[31mred\xff0\n[agent-eval: 9 more bytes were printed; the log keeps 10]")


def test_an_end_that_is_still_open_does_not_hold_us(tmp_path: Path) -> None:
    read, write = os.pipe()
    log = OutputLog(OutputFolder.at(tmp_path), "agent.log", 1 << 20)
    drain = OutputReader(read, log)
    drain.start()
    os.write(write, b"said before the end")
    drain.finish()
    os.close(write)
    log.close()
    assert (tmp_path / "agent.log").read_bytes() == b"said before the end"


def test_no_file_where_nothing_was_said(tmp_path: Path) -> None:
    OutputLog(OutputFolder.at(tmp_path), "agent.log", 10).close()
    assert not (tmp_path / "agent.log").exists()


def test_a_log_that_cannot_be_written_is_no_reason_to_stop_reading(tmp_path: Path) -> None:
    (tmp_path / "agent.log").mkdir()
    log = OutputLog(OutputFolder.at(tmp_path), "agent.log", 1 << 20)
    read, write = os.pipe()
    drain = OutputReader(read, log)
    drain.start()
    os.write(write, b"x" * 1000)
    os.close(write)
    drain.finish()
    log.close()
    assert len(drain.tail()) == 1000
