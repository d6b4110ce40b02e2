"""Programs of four ranks of which one fails: what is said, whether all ranks end, and what is left.

    python tests/fuzz/failing_ranks.py --rounds 100

See also `test_failing_ranks` (a round of each).
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

RANKS = 4
TIMEOUT = 2.0  # seconds, EINKORN_COLLECTIVE_TIMEOUT of the programs with an endless loop
MARK = "TEST_OF_FAILING_RANKS"  # a variable that all processes of a program inherit
HERE = "program.py"

PROGRAM = """
import os, signal, sys, time
import numpy as np
from einkorn.distributed import Mesh, rank, size
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

how, which, delay, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
is_process = "PMI_RANK" in os.environ
if how == "loop" and is_process:
    os.environ["EINKORN_COLLECTIVE_TIMEOUT"] = seconds  # communicators of processes read it once
mesh = Mesh({"model": size()})
x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
model = InferenceSession(num_threads=1).load(Graph("total", lambda x: ops.allreduce.sum(x, mesh), [x]))
if is_process:
    sys.modules["mpi4py.MPI"].COMM_WORLD.Barrier()  # waits for those that start and compile slowly, without a limit
model(np.ones(5001, np.float32))
if how == "loop":
    os.environ["EINKORN_COLLECTIVE_TIMEOUT"] = seconds  # all ranks have started by now
for line in open("/proc/self/maps"):
    if "/dev/shm/" in line:
        print("has mapped", line.split()[5], flush=True)
start = time.monotonic()
while rank() != which or time.monotonic() - start < delay:
    over = np.float32([rank() == which and time.monotonic() - start >= delay])
    if model(over)[0].to_numpy()[0]:
        break
    model(np.ones(5001, np.float32))
if rank() == which:
    print("failed at", time.time(), flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        raise ValueError("no data for this rank")
    while True:
        pass
while True:
    model(np.ones(5001, np.float32))
"""

LAUNCHERS = {
    "run": [sys.executable, "-m", "einkorn", "run", "-n", str(RANKS)],
    "threads": [sys.executable, "-m", "einkorn", "run", "-n", str(RANKS), "--backend", "threads"],
    "mpiexec": [str(Path(sys.executable).with_name("mpiexec")), "-n", str(RANKS), sys.executable],
}
# A thread cannot be killed; it and its process are the same.
CASES = [case for case in itertools.product(("raise", "kill", "loop"), LAUNCHERS) if case != ("kill", "threads")]


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    Attributes:
        faults: what was not as it should be, a sentence each.
        seconds: from the failure to the end of the launcher.
    """

    faults: tuple[str, ...]
    seconds: float


def said(how: str, launcher: str, rank: int) -> str:
    """A pattern of what has to be said."""
    if how == "loop":
        return (
            rf"rank \d waited {TIMEOUT:g} s in allreduce\.sum \(float32, \d+ elements.*, and rank {rank} did not come"
        )
    if how == "kill":
        return rf"rank {rank} was ended by signal 9 \(SIGKILL\)" if launcher == "run" else "signal 9"
    if launcher == "threads":
        return rf"(?s)ValueError: no data for this rank.*rank {rank} of {RANKS} raised this"
    return rf"\[rank {rank}\] ValueError: no data for this rank"


def one(how: str, launcher: str, rank: int, delay: float) -> Outcome:
    """Runs a program in which a rank fails after some seconds."""
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, HERE)
        program.write_text(PROGRAM)
        command = [*LAUNCHERS[launcher], str(program), how, str(rank), f"{delay:.3f}", f"{TIMEOUT:g}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        end = time.time()
    faults = []
    text = done.stdout + done.stderr
    if done.returncode == 0:
        faults.append("the status is 0")
    if not re.search(said(how, launcher, rank), text):
        faults.append(f"what was said does not match {said(how, launcher, rank)!r}: {text[-3000:]}")
    faults += left(mark, set(re.findall(r"has mapped (\S+)", text)))
    failed = re.search(r"failed at ([\d.]+)", text)
    return Outcome(tuple(faults), end - float(failed[1]) if failed else float("nan"))


def left(mark: str, files: set[str], patience: float = 5.0) -> list[str]:
    """The processes of a program that have not ended, and which files are still there."""
    end = time.monotonic() + patience
    while True:
        faults = [f"process {pid} runs on" for pid in processes() if mark.encode() in read(f"/proc/{pid}/environ")]
        faults += [f"{name} is left" for name in files if os.path.exists(name)]
        if not faults or time.monotonic() > end:
            return faults
        time.sleep(0.05)


def processes() -> list[str]:
    """The numbers of all processes of the machine."""
    return [name for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())]


def read(path: str) -> bytes:
    """What a file of a process holds; nothing once it has ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    times: dict[tuple[str, str], list[float]] = {case: [] for case in CASES}
    faults: Counter[tuple[str, str]] = Counter()
    for number in range(options.rounds):
        for case in CASES:
            rank = rng.randrange(RANKS)
            outcome = one(*case, rank, rng.uniform(0, 0.5))
            times[case].append(outcome.seconds)
            faults[case] += bool(outcome.faults)
            for fault in outcome.faults:
                print(f"round {number}, {case}, rank {rank}: {fault}", flush=True)
        for (how, launcher), each in times.items():
            numbers = f"median {statistics.median(each):.2f} s, longest {max(each):.2f} s after the failure"
            print(f"{how} {launcher}: {len(each)} rounds, {faults[how, launcher]} with faults, {numbers}", flush=True)
    return 1 if faults.total() else 0


if __name__ == "__main__":
    sys.exit(main())
