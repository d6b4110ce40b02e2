"""Ctrl-C while a kernel runs, whatever calls it: KeyboardInterrupt comes out, or the call is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph.interop import late_interrupts

from . import elementwise_kernels as e

ROOT = Path(__file__).parents[2]
ROUNDS = os.environ.get("EINKORN_TEST_INTERRUPTS", "21")


def test_at_random_moments() -> None:
    """In a process of its own: ufuncs, numba with and without `try`, JAX with and without `jit`, direct calls."""
    for extra in ("jax", "numba"):
        pytest.importorskip(extra)
    command = [sys.executable, "-m", "tests.support.interrupted_running", ROUNDS, "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540)
    said, right, interrupted = done.stdout.split() if done.stdout.startswith("right") else (done.stdout, "", "0")
    assert (said, right, done.returncode) == ("right", ROUNDS, 0), done.stdout + done.stderr
    assert int(interrupted) > int(ROUNDS) // 4


def test_an_exception_that_is_raised_later_leaves_the_handler_as_it_was() -> None:
    class Stop(Exception):
        pass

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        error = Stop("at once")
        assert late_interrupts.raise_later(error) and late_interrupts.is_late()
        with pytest.raises(Stop) as caught:
            signal.raise_signal(signal.SIGINT)
        assert caught.value is error and not late_interrupts.is_late()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert late_interrupts.raise_later(error)
        late_interrupts.forget(error)  # it was raised otherwise
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, former)


def test_a_recursion_error_reaches_the_caller_of_a_ufunc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's own has no room at such a depth
    root: Any = e.root.ufunc
    good, bad = np.ones(4, np.float32), -np.ones(4, np.float32)
    assert np.array_equal(root(good), good)

    def deep() -> Any:
        try:
            return deep()
        except RecursionError:
            return root(bad)  # there is hardly room for the error's text

    with pytest.raises((RecursionError, KernelError)):
        deep()
    assert np.array_equal(root(good), good)
