"""Ctrl-C at any moment: the process lives, and what was interrupted works when it is done again."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from einkorn.dsl.contract import abi
from einkorn.graph.findings import report_callbacks
from einkorn.graph.findings.late_signals import keep

SUPPORT = Path(__file__).parents[1] / "support"
PATIENCE = 300.0  # seconds in which every process must have ended


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_of_import_compile_load_and_run(seed: int, tmp_path: Path) -> None:
    """Four at random moments of a process: what each costs is little next to what the process does anyway."""
    moments = random.Random(seed)
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path), "EINKORN_NUM_THREADS": "2"}
    process = subprocess.Popen(
        [sys.executable, str(SUPPORT / "interrupted.py")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    for _ in range(4):
        time.sleep(moments.random() ** 2 * 4)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (said, process.returncode, err) == ("begun\n", 0, "")
    assert set(out.splitlines()) <= {"stopped", "right"} and out.endswith("right\n")


CALLERS = ("direct", "text", "load", "extension", "eager", "package", "command")
ROUNDS = int(os.environ.get("EINKORN_TEST_INTERRUPTS", "28"))


@pytest.mark.parametrize("callers", [CALLERS, ("torch_op", "torch_call", "torch_compile")], ids=["numpy", "torch"])
def test_exceptions_of_handlers_reach_every_caller_of_the_compiler(callers: Sequence[str], tmp_path: Path) -> None:
    """At random moments; each round is right, or ends with the handler's own exception, and is right the next time."""
    if "torch_op" in callers:
        pytest.importorskip("torch")
    rounds = ROUNDS * len(callers) // 7
    for name in ("cache", "temporary"):
        (tmp_path / name).mkdir()
    folders = {"EINKORN_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, str(SUPPORT / "interrupted_callers.py"), str(rounds), "0", *callers]
    environment = {**os.environ, **folders}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE + 10 * ROUNDS)
    said = done.stdout.splitlines()[-1:]
    assert done.returncode == 0 and said[0].startswith(f"right {rounds} "), done.stdout + done.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_calls_without_an_end_are_interrupted(threads: int, tmp_path: Path) -> None:
    """By Ctrl-C, with the exception of the handler that is in place; and models work as before."""
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path), "EINKORN_NUM_THREADS": str(threads)}
    command = [sys.executable, str(SUPPORT / "interrupted_calls.py")]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.stderr.splitlines()[-1:] == ["right"] and done.returncode == 0, done.stderr


def test_what_a_signal_raises_at_the_edge_of_a_report_is_kept() -> None:
    """ctypes would ignore it."""
    taken: list[BaseException] = []

    def report(site: int) -> None:
        raise KeyboardInterrupt

    keep(report, taken.append)
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(report)(3)
    assert [type(error) for error in taken] == [KeyboardInterrupt]


class Hearer:
    """An owner of calls that notes what it receives."""

    def __init__(self) -> None:
        self.received: list[tuple[int, int, Any]] = []
        self.raises = False

    def on_report(self, context: int, site: int, arguments: Any) -> None:
        if self.raises:
            raise KeyboardInterrupt
        self.received.append((context, site, arguments[0]))

    def on_exchange(self, context: int, slot: int, kind: int, *given: int) -> int:
        raise NotImplementedError  # there are no ranks

    def on_interrupt(self, context: int, error: BaseException) -> None:
        self.received.append((context, -1, type(error)))


def test_reports_find_the_owner_of_their_context() -> None:
    owners = [Hearer(), Hearer()]
    contexts = [
        abi.Context(report=report_callbacks.REPORT, owner=report_callbacks.owner_number(owner)) for owner in owners
    ]
    values = (ctypes.c_int64 * 1)(7)
    for context in contexts:
        abi.ReportFunction(context.report)(ctypes.addressof(context), 3, values)
    addresses = [ctypes.addressof(context) for context in contexts]
    assert [owner.received for owner in owners] == [[(at, 3, 7)] for at in addresses]
    owners[0].raises = True  # as a signal's handler might
    keep(report_callbacks._report, report_callbacks._take)  # pytest has put a hook of its own before
    abi.ReportFunction(contexts[0].report)(addresses[0], 3, values)
    assert owners[0].received[1:] == [(addresses[0], -1, KeyboardInterrupt)]
    native = report_callbacks.silent_report(owners[1], 99)  # of code that does not name its context
    native(5, values)
    assert owners[1].received[1:] == [(99, 5, 7)]
    del owners[:]
    for context in contexts:  # nothing receives it
        abi.ReportFunction(context.report)(ctypes.addressof(context), 3, values)
    native(5, values)
