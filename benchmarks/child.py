"""All workloads of one run, in a process that has one number of threads: `python child.py '{"threads": 2, …}'`.

Thread counts are read once in a process, by us and by others, so the driver starts one such process for each count. The
result of every contender is compared with NumPy's before it is timed. What cannot be prepared or is wrong is reported
with the reason, and counts as a failure of the run when it is ours.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from mathematics import plainly
from measure import interleave
from workloads import Workload, WorkloadSizes, workloads


def main() -> None:
    request = json.loads(sys.argv[1])
    threads = int(request["threads"])
    peers = {}
    for name in ("einkorn", *request["peers"]):
        peers[name] = importlib.import_module(f"with_{name}")
        if hasattr(peers[name], "use_threads"):
            peers[name].use_threads(threads)
    sizes = WorkloadSizes(request["elements"], tuple((m, k, n) for m, k, n in request["products"]))
    for workload in workloads(sizes, request["sections"], request["functions"]):
        answer = _measure(workload, peers, request["rounds"], request["pause"])
        print(json.dumps({**asdict(workload), "threads": threads, **answer}), flush=True)


def _measure(workload: Workload, peers: dict[str, Any], rounds: int, pause: float) -> dict[str, Any]:
    arrays = workload.arrays()
    plain = plainly(workload.key) if workload.section == "math" else None
    expected = plain(arrays) if plain else peers["numpy"].prepare(workload, arrays)["new"]()
    functions: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name, peer in peers.items():
        try:
            prepared = peer.prepare(workload, arrays)
            for memory, run in prepared.items():
                _check(np.asarray(run()), expected)
                functions[f"{name} {memory}"] = run
        except Exception as error:  # a contender that cannot do it must not stop the others
            failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            functions = {key: run for key, run in functions.items() if key.split()[0] != name}
    timings = interleave(functions, rounds, pause=pause)
    return {"timings": {name: asdict(timing) for name, timing in timings.items()}, "failures": failures}


def _check(got: Any, expected: Any) -> None:
    if got.shape != expected.shape:
        raise AssertionError(f"shape {got.shape}, NumPy has {expected.shape}")
    scale = float(np.abs(expected).max(initial=1.0))
    if not np.allclose(got, expected, rtol=1e-4, atol=1e-5 * scale):
        raise AssertionError(f"differs from NumPy by {np.abs(got - expected).max():.3g}")


main()
