"""Storage in the stack is counted together, and threads have room for what is allowed, whatever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.compiler.passes.limit_stacks import stack_bytes
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import host
from einkorn.dsl.diagnostics.errors import CompileError
from einkorn.dsl.environment.stacks import OWN, room_for_threads
from einkorn.dsl.package.library import load_library

from .conftest import model_of

STACKS = str(Path(__file__).parent / "stack_kernels.py")
PIECE = 16384  # bytes of each storage
X = np.arange(300, dtype=np.float32)

CHILD = """
import sys, threading
import numpy as np
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

cpu = DeviceRef.CPU()

def model(op, count):
    def forward(x):
        return ops.custom(op, cpu, [x], parameters={"count": count})
    types = [TensorType(DType.float32, ["n"], cpu)]
    return InferenceSession().load(Graph("g", forward=forward, input_types=types, custom_extensions=[sys.argv[1]]))

models = {op: (model(op, count), count * (2 if op == "in_both" else 1))
          for op, count in (("in_tasks", 200), ("on_the_host", 200), ("in_both", 100))}
x = np.ones(300, np.float32)
wrong = []

def work():
    for op, (m, factor) in models.items():
        for _ in range(3):
            if not (m(x)[0].to_numpy() == factor).all():
                wrong.append(op)

def by_a_thread(size):
    threading.stack_size(size)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert threading.stack_size() == size

for size in map(int, sys.argv[2].split(",")):
    by_a_thread(size)
work()
print("wrong:", wrong)
"""


@pytest.mark.parametrize("threads", ["1", "3"])
def test_threads_with_small_stacks(threads: str) -> None:
    """Megabytes of storage, called from threads of 64 KiB and more, and from the main thread; tasks in the pool's."""
    command = [sys.executable, "-c", CHILD, STACKS, "65536,262144,1048576,0"]
    environment = {**os.environ, "EINKORN_NUM_THREADS": threads}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "wrong: []"), done.stderr[-2000:]


@pytest.mark.parametrize("op", ["in_tasks", "on_the_host", "in_both"])
def test_too_much_is_refused_by_name(op: str) -> None:
    count = (4 << 20) // PIECE // (2 if op == "in_both" else 1)
    assert model_of(op, X, path=STACKS, count=count - 1)(X)[0].to_numpy()[7] > 0
    with pytest.raises(CompileError) as caught:
        model_of(op, X, path=STACKS, count=count + 1)
    error = caught.value
    pieces = (count + 1) * (2 if op == "in_both" else 1)
    assert error.code == "EK0217" and error.op == op and error.got == pieces * PIECE
    assert f"the {pieces} stack[...]" in error.message and error.place is not None
    assert error.place.source_line() == "    part = stack[float32](4096)"
    assert any("4096 elements of float32: 16,384 bytes of 4,194,304" in note for note in error.notes)
    assert any("called at" in note for note in error.notes)


COMPILING = """
import threading
import numpy as np
from einkorn.graph import DType, Graph, InferenceSession, TensorType, ops

shapes, out = [(64, 48), (48, 64)], []

def forward(x, y):
    return ops.softmax(ops.gelu(x @ y)), ops.cumsum(ops.sigmoid(x), axis=1)

def work():
    types = [TensorType(DType.float32, shape) for shape in shapes]
    model = InferenceSession().load(Graph("g", forward=forward, input_types=types))
    out.append(model(*(np.ones(shape, np.float32) for shape in shapes))[0].to_numpy().sum())

threading.stack_size(64 << 10)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(*np.round(out), threading.stack_size(0))
"""


def test_a_thread_with_a_small_stack_compiles(tmp_path: Path) -> None:
    """The compiler needs more than such a thread has; several groups are compiled side by side."""
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path), "EINKORN_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", COMPILING], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "64.0 65536"), done.stderr[-2000:]


def test_what_others_say_of_stacks_meanwhile_stays() -> None:
    """As when one thread starts another with a small stack, and that one starts a thread with a large one."""
    before = threading.stack_size(64 << 10)
    try:
        with room_for_threads():
            assert threading.stack_size(128 << 10) == OWN
        assert threading.stack_size(64 << 10) == 128 << 10
        with room_for_threads():
            pass
        assert threading.stack_size(before) == 64 << 10
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize(("op", "most"), [("on_the_host", 3), ("in_tasks", 3), ("in_both", 6)])
def test_how_much_of_a_stack_code_takes_is_known(op: str, most: int) -> None:
    library = load_library(STACKS)
    kernel = library.kernels[op]
    instance = make_instance(kernel.schema, {}, {}, {"count": 3})
    program = typed_program(instance_entry(kernel.portable, instance), host())
    assert stack_bytes(program) == most * PIECE
