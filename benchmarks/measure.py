"""Times of several functions side by side, on a machine that does other things too.

Each round calls every function once, in turning order, so that a slow minute hits all of them. After each sample the
kernel reports how long the threads of this process stood ready without a core (`/proc/self/task/*/schedstat`). Samples
in which that was more than `DISTURBED` of the wall time are *disturbed*; medians are over the others. What is left as
noise: the clock of the cores, and the memory traffic of other processes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

DISTURBED = 0.05
ENOUGH = 5  # undisturbed samples that a median needs; rounds are added up to three times as many to get them
WARM_CALLS = 8  # before calls are counted, unless they last for longer than that:
WARM_SECONDS = 0.2
_TASKS = "/proc/self/task"


@dataclass(frozen=True)
class CallTiming:
    """Seconds of one call.

    `best` is the smallest of all samples, `median` that of the undisturbed ones (of all, when there are none). The two
    `cpu_` are processor time, of all samples and threads; on one thread it is what the wall time would be on a machine
    of one's own. `clean` of `rounds` samples were undisturbed.
    """

    best: float
    median: float
    cpu_best: float
    cpu_median: float
    clean: int
    rounds: int


@dataclass(frozen=True)
class _Sample:
    wall: float
    cpu: float
    waited: float


def waited() -> float:
    """Seconds that threads of this process have stood ready without a core; 0 where the system does not report it."""
    total = 0
    try:
        for task in os.listdir(_TASKS):
            with contextlib.suppress(OSError), open(f"{_TASKS}/{task}/schedstat") as file:
                total += int(file.read().split()[1])
    except OSError:
        return 0.0
    return total * 1e-9


def summarise(walls: list[float], cpus: list[float], waits: list[float]) -> CallTiming:
    """The timing behind samples of wall time, processor time and time without a core, all in seconds."""
    clean = [wall for wall, wait in zip(walls, waits, strict=True) if wait <= DISTURBED * wall]
    best, median = min(walls), statistics.median(clean or walls)
    return CallTiming(best, median, min(cpus), statistics.median(cpus), len(clean), len(walls))


def interleave(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    least: float = 2e-3,
    pause: float = 0.03,
    limit: float = 20.0,
) -> dict[str, CallTiming]:
    """Times of one call of each function.

    Args:
        functions: what to call, by name.
        rounds: how many samples of each; more, up to three times as many, until enough of them are undisturbed.
        least: seconds that a sample lasts at least; shorter functions are called several times in one.
        limit: seconds after which no further round is begun, when each function has three samples.
        pause: seconds of rest before each sample, and more until no thread of another contender spins (see `settle`).
            One call that is not timed follows it, so that sleeping threads and cold caches are not in the sample.
    """
    counts = {name: _calls_for(function, least) for name, function in functions.items()}
    samples: dict[str, list[_Sample]] = {name: [] for name in functions}
    names = list(functions)
    end = time.monotonic() + limit
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds * 3):
            if number >= 3 and time.monotonic() > end:
                break
            if number >= rounds and all(_clean(taken) >= min(ENOUGH, rounds) for taken in samples.values()):
                break
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                settle(pause)
                samples[name].append(_sample(functions[name], counts[name]))
            gc.collect()
    finally:
        if gc_was_on:
            gc.enable()
    return {
        name: summarise([s.wall for s in taken], [s.cpu for s in taken], [s.waited for s in taken])
        for name, taken in samples.items()
    }


def settle(pause: float, at_most: float = 0.5) -> None:
    """Rests so long, and then until no other thread of this process runs.

    Threads of libraries look for work before they sleep: those of PyTorch for 5 to 20 ms after a call, those of ONNX
    Runtime for 60 to 120. A library that runs behind them would have one core less.
    """
    time.sleep(pause)
    end = time.monotonic() + at_most
    while _others_run() and time.monotonic() < end:
        time.sleep(0.001)


def _others_run() -> bool:
    """Whether a thread of this process other than the calling one is running, or ready to."""
    mine = str(threading.get_native_id())
    with contextlib.suppress(OSError):
        for task in os.listdir(_TASKS):
            if task != mine:
                with contextlib.suppress(OSError), open(f"{_TASKS}/{task}/stat") as file:
                    if file.read().rpartition(") ")[2].startswith("R"):
                        return True
    return False


def _clean(samples: list[_Sample]) -> int:
    return sum(sample.waited <= DISTURBED * sample.wall for sample in samples)


def _calls_for(function: Callable[[], object], least: float) -> int:
    """How many calls last so long, when the first ones, in some of which code is made, are over."""
    end = time.perf_counter() + WARM_SECONDS
    for _ in range(WARM_CALLS):
        function()
        if time.perf_counter() > end:
            break
    calls = 1
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            function()
        spent = time.perf_counter() - start
        if spent >= least:
            return calls
        calls = max(calls + 1, int(calls * min(10.0, 1.2 * least / max(spent, 1e-9))))


def _sample(function: Callable[[], object], calls: int) -> _Sample:
    function()
    waited_before = waited()
    cpu, start = time.process_time(), time.perf_counter()
    for _ in range(calls):
        function()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return _Sample(wall / calls, cpu / calls, (waited() - waited_before) / calls)
