"""The loops over elements of twenty kernels, as assembly: what an author would have written by hand.

Every loop of a task that computes on vectors computes on nothing else: no floating-point arithmetic on single
numbers, no spills, no calls. What is less than a vector is done under a mask, and no loop has arithmetic on single
numbers; on AVX2, where masked stores are slow, loops that the author wrote over elements (`foreach`, `for k in
range(n)`) have such a remainder.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from support.harness import assembly_of
from support.inner_loops import Loop, innermost_loops

from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.dsl.frontend.program import PortableKernel
from einkorn.dsl.package.library import LoadedLibrary, library_of, load_library
from einkorn.dsl.package.manifest import Instance
from einkorn.stdlib.kernels import reduction

KERNELS = Path(__file__).parents[2] / "benchmarks" / "twenty_kernels.py"

# Loops that compute on whole vectors at least, and loops of the author's own.
LOOPS = {
    "add_one": (1, 1),
    "multiply_add": (1, 1),
    "relu": (1, 1),
    "gelu": (1, 1),
    "silu": (1, 1),
    "softplus": (2, 2),  # with and without the rare case of log
    "lerp": (1, 1),
    "length": (1, 1),
    "quantised": (1, 1),
    "polynomial": (1, 1),
    "row_sum": (1, 0),
    "row_max": (1, 0),
    "row_argmax": (1, 0),
    "row_moments": (1, 0),
    "row_dot": (1, 0),
    "logsumexp": (1, 0),
    "rms_norm": (2, 1),
    "layer_norm": (3, 1),
    "softmax": (4, 2),
    "row_cumsum": (2, 0),
}
WIDE = {"x86-64-v3": {"y"}, "x86-64-v4": {"y", "z"}}
# Operands that do not change and find no register among the sixteen of AVX2: they are read from the frame, as constants
# are from next to the code. Nothing that changes is ever put there. (No poll of a row leaves a vector of AVX-512
# alone.)
KEPT = {"x86-64-v3": {"softplus": 7, "logsumexp": 2, "softmax": 2}, "x86-64-v4": {"softmax": 1}}
# What sixteen elements of a running sum come to is one number, widened and added to those before.
CARRIES = {"row_cumsum": 2}


@cache
def library() -> LoadedLibrary:
    return load_library(KERNELS)


@cache
def loops_of_tasks(name: str, target: str) -> list[Loop]:
    kernel = library().kernels[f"twenty::{name}"]
    ranks = {"s": 1} if any("*s" in argument.dims for argument in kernel.schema.inputs) else {}
    return loops_of(kernel.portable, make_instance(kernel.schema, {}, ranks, {}), target)


def loops_of(portable: PortableKernel, instance: Instance, target: str) -> list[Loop]:
    asm = assembly_of(instance_entry(portable, instance), target)
    return [loop for loop in innermost_loops(asm) if loop.function.startswith("body_")]


def test_all_twenty_are_looked_at() -> None:
    assert {f"twenty::{name}" for name in LOOPS} == set(library().kernels) and len(LOOPS) == 20


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_whole_vectors(name: str, target: str) -> None:
    loops = loops_of_tasks(name, target)
    vectors = [loop for loop in loops if loop.packed]
    wide = [loop for loop in vectors if loop.widths & WIDE[target]]
    expected, own = LOOPS[name]
    assert len(wide) >= expected, [loop.instructions for loop in loops]
    for loop in vectors:
        assert len(loop.scalar) <= CARRIES.get(name, 0), loop.scalar
        assert not loop.spills, (loop.spills, loop.instructions)
        assert len(loop.kept) <= KEPT[target].get(name, 0), loop.kept
        assert not loop.calls, loop.calls
    remainders = [loop for loop in loops if loop.scalar and not loop.packed]
    assert len(remainders) <= (own if target == "x86-64-v3" else 0), [loop.instructions for loop in remainders]


def test_rows_that_only_stream_take_half_vectors_and_request_ahead() -> None:
    """Where much is computed, vectors are whole ones."""
    for name in ("row_sum", "row_dot", "row_max", "rms_norm", "layer_norm"):
        loops = [loop for loop in loops_of_tasks(name, "x86-64-v4") if loop.packed]
        assert not any("z" in loop.widths for loop in loops), name
        assert any(line.startswith("prefetch") for loop in loops for line in loop.instructions), name
    for name in ("row_argmax", "row_moments", "softmax", "row_cumsum"):
        assert any("z" in loop.widths for loop in loops_of_tasks(name, "x86-64-v4")), name


@pytest.mark.parametrize("dtype", ("float32", "int32"))
@pytest.mark.parametrize("name", ("reduce_sum", "reduce_max"))
def test_columns_that_only_stream_take_half_vectors(name: str, dtype: str) -> None:
    """Not those whose maximum is found by the bits of floats, which takes more than one instruction for each."""
    kernel = library_of(reduction).kernels[name]
    wide = {"float32": "float32", "int32": "int64"}[dtype]
    dtypes = {"E": dtype, "S": wide} if name == "reduce_sum" else {"N": dtype}
    instance = make_instance(kernel.schema, dtypes, {"b": 1}, {"axis": 0})
    loops = [loop for loop in loops_of(kernel.portable, instance, "x86-64-v4") if loop.packed]
    whole = any("z" in loop.widths for loop in loops)
    assert loops and whole == (name == "reduce_max" and dtype == "float32")


def test_what_the_checks_look_for_is_found() -> None:
    """Assembly with every fault: none of the properties holds for lack of seeing."""
    text = """
f:
	vbroadcastss	.LCPI0_0(%rip), %ymm0
	vmovups	%ymm0, 64(%rsp)
	vmovups	%ymm1, 32(%rsp)
.LBB0_1:
	vaddps	(%rdi,%rax,4), %ymm2, %ymm2
	vpaddd	64(%rsp), %ymm2, %ymm2
	vmulps	32(%rsp), %ymm2, %ymm2
	vmovups	%ymm2, 32(%rsp)
	vaddss	(%rdi), %xmm3, %xmm3
	vcvttss2si	%xmm3, %ebx
	callq	expf
	addq	$8, %rax
	jne	.LBB0_1
	retq
"""
    (loop,) = innermost_loops(text)
    assert loop.function == "f" and len(loop.packed) == 3 and loop.widths == {"y"}
    assert loop.scalar == ["vaddss (%rdi), %xmm3, %xmm3", "vcvttss2si %xmm3, %ebx"] and loop.calls == ["callq expf"]
    assert loop.kept == ["vpaddd 64(%rsp), %ymm2, %ymm2"]
    assert loop.spills == ["vmulps 32(%rsp), %ymm2, %ymm2", "vmovups %ymm2, 32(%rsp)"]
