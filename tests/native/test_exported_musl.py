"""Exported files in programs whose C library is musl: loaded, linked in, and with all of the first thread's stack.

They need musl-gcc, or the package ziglang for a program without a loader.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support import graphs
from support.emulated import Emulated, Program
from support.exported import attention, attention_arrays, check_equal

from einkorn.dsl.contract import exports
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

F32, HOST = np.float32, DeviceRef.CPU()
STACKS = Path(__file__).resolve().parents[1] / "checks" / "stack_kernels.py"

STATIC = """
#include "attn.h"
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
  static float x[35], w[63], y[35];
  FILE *file = fopen(arguments[1], "rb");
  if (count != 2 || fread(x, 4, 35, file) != 35 || fread(w, 4, 63, file) != 63) return 2;
  if (attn(x, w, 5, 7, 9, y, NULL) != 0) return 1;
  return fwrite(y, 4, 35, stdout) != 35;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    if shutil.which("musl-gcc") is None:
        pytest.skip("there is no musl-gcc")
    return Program(tmp_path_factory.mktemp("musl"), ["musl-gcc"])


def test_a_program_loads_and_calls_a_file(program: Program, tmp_path: Path) -> None:
    model = graphs.load(attention, (F32, ("b", "k")), (F32, ("k", "n")))
    made = Emulated(model, tmp_path, program, "attn", target="host")
    for sizes in ((5, 7, 9), (0, 3, 4), (700, 300, 400)):
        check_equal(model, made, attention_arrays(*sizes))


def test_the_first_thread_has_the_stack_of_its_limit(program: Program, tmp_path: Path) -> None:
    """musl reports what was used of it so far: less than a call needs."""
    graph = Graph(
        "deep",
        lambda x: ops.custom("on_the_host", HOST, [x], parameters={"count": 200}),
        [TensorType(DType.float32, ("n",), HOST)],
        custom_extensions=[STACKS],
    )
    model = InferenceSession().load(graph)
    made = Emulated(model, tmp_path, program, "deep", target="host")
    assert made.record.stack_bytes > 1 << 20 > exports.PLAIN_STACK
    made.options = ("in",)
    check_equal(model, made, [np.ones(300, F32)])


@pytest.mark.skipif(find_spec("ziglang") is None, reason="the package ziglang is not installed")
def test_an_object_is_linked_into_a_program_that_needs_no_library(tmp_path: Path) -> None:
    model = graphs.load(attention, (F32, ("b", "k")), (F32, ("k", "n")))
    model.export(tmp_path / "attn.o", header=tmp_path / "attn.h", name="attn", targets="host")
    given = attention_arrays()
    (tmp_path / "given").write_bytes(b"".join(array.tobytes() for array in given))
    (tmp_path / "main.c").write_text(STATIC)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl", "-O1", "-static"]
    subprocess.run([*compiler, "main.c", "attn.o", "-o", "main"], check=True, cwd=tmp_path)
    printed = subprocess.run(["./main", "given"], check=True, cwd=tmp_path, capture_output=True).stdout
    assert printed == graphs.results(model, *given)[0].tobytes()
