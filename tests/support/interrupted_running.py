"""A program whose calls of kernels are interrupted at random moments, whatever calls them.

Each round starts one call, and SIGINT comes at a random moment. Either the result is right, or KeyboardInterrupt comes
out; then the same call is done again, and is right. Run as a program: interrupted_running.py COUNT SEED.
"""

from __future__ import annotations

import random
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from einkorn.dsl import kernels_of

SIZE = 3000
KERNELS = """
from typing import TypeVar
from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)

@register("slow")
def slow(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    def element(i):
        total = x[i]
        for k in range(6000):
            total = total * 0.5 + x[i]
        return total
    foreach(out, element)

@register("slow_plus")
def slow_plus(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    def element(i):
        total = x[i]
        for k in range(6000):
            total = total * 0.5 + x[(i[0] + 1) % x.dim(0)]
        return total
    foreach(out, element)
"""


def callers(slow: Any, slow_plus: Any, known: set[str]) -> dict[str, Callable[[], Any]]:
    x = np.linspace(1, 2, SIZE, dtype=np.float32)
    wide = np.linspace(1, 2, 2 * SIZE, dtype=np.float32)
    collected: dict[str, Callable[[], Any]] = {
        "direct": lambda: slow(x),
        "ufunc": lambda: slow.ufunc(x),
        "ufunc with strides": lambda: slow.ufunc(wide[::2]),
    }
    if "jax" in known:
        import einkorn.jax
        import jax

        once, op, plus = map(einkorn.jax.op, (slow, slow, slow_plus))
        jitted = jax.jit(lambda v: plus(op(v)) + 1)
        y = jax.numpy.asarray(x)
        collected["jax"] = lambda: np.asarray(jitted(y))
        collected["jax without jit"] = lambda: np.asarray(once(y))
    if "numba" in known:
        import einkorn.numba
        import numba

        function, plus_of = map(einkorn.numba.function, (slow, slow_plus))

        @numba.njit
        def several(v: Any) -> Any:
            total = v
            for _ in range(3):
                total = plus_of(function(total))
            return total

        @numba.njit
        def caught(v: Any) -> Any:
            try:
                total = function(v)
            except Exception:
                total = v
            return total

        collected["numba"] = lambda: several(x)
        collected["numba with try"] = lambda: caught(x)
    return collected


def one_round(call: Callable[[], Any], right: Any, delay: float) -> tuple[bool, bool]:
    """Whether a round was right, and whether it was interrupted."""
    interrupted = False
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            result = call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        fine = np.array_equal(result, right)
    except KeyboardInterrupt:
        fine = interrupted = True
    return bool(fine and np.array_equal(call(), right)), interrupted


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    random.seed(seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda number, frame: signal.default_int_handler(signal.SIGINT, frame))
    kernels = kernels_of(KERNELS)
    every = callers(kernels["slow"], kernels["slow_plus"], set(sys.argv[3:]) or {"jax", "numba"})
    rights = {name: call() for name, call in every.items()}
    right = interrupts = 0
    for number in range(count):
        name = list(every)[number % len(every)]
        try:
            fine, interrupted = one_round(every[name], rights[name], random.uniform(0.0005, 0.15))
        except BaseException:
            print("WRONG", name, traceback.format_exc(), flush=True)
            continue
        if not fine:
            print("WRONG", name, flush=True)
        right, interrupts = right + fine, interrupts + interrupted
    restored = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("right" if restored else "another handler is left", right, interrupts, flush=True)


if __name__ == "__main__":
    main()
