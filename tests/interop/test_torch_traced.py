"""Ops, kernels and libraries in programs of torch.compile: traced, or left to run between two graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import einkorn.torch as ek
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.dsl.frontend.caller import Called
from einkorn.graph.interop.own_class import own_member
from einkorn.graph.loading.background import BACKGROUND

from . import direct_kernels as k

X = torch.tensor([1.0, -1.0, 3.0])


def compiled(function, **settings):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", **settings)


def shifted(name):
    @register(name)
    def kernel(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], *, by: float = 1.0):
        foreach(out, lambda i: x[i] + by)

    return kernel


@pytest.mark.parametrize("fullgraph", [False, True])
def test_sizes_that_are_computed(fullgraph):
    op = ek.op(k.kept)
    for function in (lambda x: op(x) * 2, lambda x: k.kept(x) * 2):
        program = compiled(function, fullgraph=fullgraph)
        for x in (X, torch.ones(4)):
            assert_close(program(x), x[x > 0] * 2)


def open_doors(kernel, *dtypes):
    """Calls a kernel with arrays of NumPy until native code serves them."""
    for dtype in dtypes:
        x = np.ones(3, dtype)
        for _ in range(3):
            kernel(x)
    BACKGROUND.wait()
    assert type(own_member(kernel, "__call__")) is type(len)


def test_a_kernel_that_native_code_serves():
    kernel = shifted("shifted_and_served")
    programs = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    program = torch.compile(lambda x: kernel(x) * 2, backend=programs, fullgraph=True)
    assert_close(program(X), (X + 1) * 2)
    open_doors(kernel, np.float32)
    assert_close(program(X), (X + 1) * 2)
    for by in (2.0, 3.0):  # further doors change nothing that a program relies on
        for _ in range(3):
            kernel(X.numpy(), by=by)
        BACKGROUND.wait()
        assert_close(program(X), (X + 1) * 2)
    assert programs.frame_count == 2
    assert type(kernel).__call__ is Called.__call__


IN_A_PROCESS = """
import sys
import numpy as np
import direct_kernels as kernels
from einkorn.graph.loading.background import BACKGROUND
from einkorn.graph.interop.own_class import own_member
from einkorn.graph.interop.own_class import own_member

if FIRST == "Dynamo":
    import torch._dynamo
for _ in range(3):
    kernels.add_one(np.ones(3, np.float32))
BACKGROUND.wait()
assert type(own_member(kernels.add_one, "__call__")) is type(len)
assert FIRST == "Dynamo" or "torch" not in sys.modules
import torch
program = torch.compile(lambda x: kernels.add_one(x) * 2, fullgraph=True, backend="eager")
print(program(torch.ones(3)).tolist())
"""


@pytest.mark.parametrize("first", ["the native code", "Dynamo"])
def test_native_code_that_is_there_before_and_after_dynamo(first):
    command = [sys.executable, "-W", "ignore", "-c", f"FIRST = {first!r}{IN_A_PROCESS}"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("[4.0, 4.0, 4.0]\n", "")


def test_a_kernel_called_by_itself():
    for number in range(2):  # the kernel has never been called; then it has
        kernel = shifted(f"shifted_{number}")
        if number:
            kernel(X)
        assert_close(compiled(lambda x, f=kernel: f(x) * 2, fullgraph=True)(X), (X + 1) * 2)
        assert_close(compiled(lambda x, f=kernel: f(x, by=4.0) * 2, fullgraph=True, dynamic=True)(X), (X + 4) * 2)
        assert_close(compiled(lambda x, f=kernel: ek.op(f)(x), fullgraph=True)(X), X + 1)

        def into(x, f=kernel):
            out = torch.empty_like(x)
            f(x, out=out)
            return out * 2

        assert_close(compiled(into, fullgraph=True)(X), (X + 1) * 2)
    kernel.backward(lambda context, grad: grad)
    x = X.clone().requires_grad_()
    compiled(lambda x: (kernel(x) ** 2).sum(), fullgraph=True)(x).backward()
    assert_close(x.grad, 2 * (X + 1))
    program = compiled(torch.func.grad(lambda x: (kernel(x) ** 2).sum()), fullgraph=True)
    assert_close(program(X), 2 * (X + 1))

    class Module(torch.nn.Module):
        def forward(self, x):
            return kernel(x) * 2

    assert_close(torch.export.export(Module(), (X,)).module()(X), (X + 1) * 2)


def test_a_kernel_that_serves_numpy():
    kernel = shifted("shifted_arrays")
    for _ in range(4):
        kernel(np.ones(3, np.float32))
    assert_close(compiled(lambda x: kernel(x) * 2)(X), (X + 1) * 2)
    assert_close(compiled(lambda x: torch.from_numpy(kernel(x.numpy())) * 2)(X), (X + 1) * 2)


def test_a_library_that_a_program_is_the_first_to_use():
    library = ek.CustomOpLibrary(k.__file__)

    def used(x):
        out = torch.empty_like(x)
        library.add_one(out, x)
        again = torch.empty_like(x)
        library.scale_and_shift[{"scale": 2.0}](again, out)
        return again

    assert_close(compiled(used, fullgraph=True)(X), (X + 1) * 2)


def test_what_runs_between_two_graphs():
    op, shift = ek.op(k.kept), shifted("shifted_between")
    seen = []

    def broken(x):
        kept = op(x)
        seen.append(kept.sum().item())
        return shift(kept) * op(kept)

    assert_close(compiled(broken)(X), torch.tensor([2.0, 12.0]))
    assert seen == [4.0]
