"""Outputs that nothing stores, and values that ops return, are refused; every way of storing counts as one."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from einkorn.compiler.check import check_kernels

HEAD = """
from einkorn.dsl import *
from einkorn.stdlib import Max, Sum, rowwise, scan, sort, stencil, top_k


def ignores(o, i):
    return i


def writes(o, i, v):
    o[i] = v


def thread(o, x, n: Int):
    i = gpu.global_idx.x
    if i < n:
        o[i] = x[i]


def reading_thread(o, x, n: Int):
    i = gpu.global_idx.x
    if i < n:
        y = o[i] + x[i]


"""
ONE = 'out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]'
TWO = ONE.replace(", x:", ', second: OutputTensor[float32, "n"], x:')
PARAMETER = f"{ONE}, *, on: bool = False, k: int = 0"
CONTEXT = f"{ONE}, ctx: DeviceContext"

NEVER = {
    "pass": ("pass", ONE),
    "a docstring": ('"""Says something."""', ONE),
    "a variable": ("y = x[0]", ONE),
    "only read": ("y = out[0] + x[0]", ONE),
    "only read, as a vector": ("y = out.load(0, width=4).reduce_add()", ONE),
    "only read through a pointer": ("p = out.pointer()\ny = p[0]", ONE),
    "only prefetched": ("out.prefetch(0)", ONE),
    "only looked at": ("n = out.dim(0) + out.size", ONE),
    "an unused pointer": ("p = out.pointer() + 1", ONE),
    "one of two": ("foreach(out, lambda i: x[i])", TWO),
    "the other of two": ("for i in range(x.dim(0)):\n    second[i] = x[i]", TWO),
    "if False": ("if False:\n    out[0] = 1.0", ONE),
    "a parameter": ("if on:\n    foreach(out, lambda i: x[i])", PARAMETER),
    "no round": ("for i in unroll(k):\n    out[i] = 1.0", PARAMETER),
    "a function without a call": ("def f(i):\n    out[i] = x[i]", ONE),
    "a helper that ignores it": ("parallel_for(x.dim(0), lambda i: nothing(ignores(out, i)))\n", ONE),
    "an unused view": ("view = out[1:]", ONE),
    "a local of the same name": ("def f(out):\n    out[0] = 1.0\nf(stack[float32](4))", ONE),
    "a launch that reads": ("ctx.launch(reading_thread, out, x, x.dim(0), grid=1, block=32)", CONTEXT),
    "another target": ("if not (ctx.target.is_cpu or ctx.target.is_gpu):\n    out[0] = 1.0", CONTEXT),
    "an early return": ("if not on:\n    return\nout[0] = 1.0", PARAMETER),
}

STORED = {
    "foreach": ("foreach(out, lambda i: x[i])", ONE),
    "foreach of two": ("foreach((out, second), lambda i: (x[i], -x[i]))", TWO),
    "an element": ("out[0] = x[0]", ONE),
    "in a run-time branch": ("if x[0] > 0:\n    out[0] = x[0]", ONE),
    "in a loop": ("for i in range(1, x.dim(0)):\n    out[i] = x[i]", ONE),
    "in a while loop": ("i = 0\nwhile i < x.dim(0):\n    out[i] = x[i]\n    i += 1", ONE),
    "after a run-time return": ("if x[0] > 0:\n    return\nout[0] = x[0]", ONE),
    "augmented": ("out[0] += x[0]", ONE),
    "a vector": ("out.store(x.load(0, width=4), 0)", ONE),
    "under a mask": ("v = x.load(0, width=4)\nout.store(v, 0, mask=v > 0)", ONE),
    "scattered": ("out.scatter(x.load(0, width=4), iota(int64, 4))", ONE),
    "atomic": ("parallel_for(x.dim(0), lambda i: atomic_add(out, 0, x[i]))", ONE),
    "atomic.store": ("atomic.store(out, 0, x[0])", ONE),
    "atomic.exchange": ("y = atomic.exchange(out, 0, x[0])", ONE),
    "a pointer": ("p = out.pointer()\np[0] = x[0]", ONE),
    "a moved pointer": ("p = out.pointer() + 2\n(p + 1)[0] = x[0]", ONE),
    "a pointer that is chosen": ("p = out.pointer()\nq = p + 1 if x[0] > 0 else p\nq[0] = x[0]", ONE),
    "a view": ("view = out[1:]\nforeach(view, lambda i: x[i])", ONE),
    "a helper": ("for i in range(x.dim(0)):\n    writes(out, i, x[i])", ONE),
    "store()": ("parallel_for(x.dim(0), lambda i: store(out, i, x[i]))", ONE),
    "a nested function": ("def f(i):\n    def g(v):\n        out[i] = v\n    g(x[i])\nparallel_for(x.dim(0), f)", ONE),
    "vectorize": ("vectorize(x.dim(0), 4, lambda i, w: out.store(x.load(i, width=w), i))", ONE),
    "tile": ("tile(x.dim(0), (4, 1), lambda i, w: out.store(x.load(i, width=w), i))", ONE),
    "a launch": ("ctx.launch(thread, out, x, x.dim(0), grid=1, block=32)", CONTEXT),
    "scan": ("scan(out, x, Sum)", ONE),
    "rowwise": ("rowwise(x, Max, lambda row, value: store(out, 0, value))", ONE),
    "sort": ("sort(out, x)", ONE),
    "stencil": ("stencil(out, x, lambda near, i: near(0), reach=(1,))", ONE),
    "a tuple of outputs": ("for o in (out, second):\n    foreach(o, lambda i: x[i])", TWO),
    "it always raises": ('raise ValueError("not today")', ONE),
    "nothing to store": ("pass", 'out: OutputTensor[float32, "0"], x: InputTensor[float32, "n"]'),
    "a loop that may have no round": ("for i in range(out.dim(0) - 5):\n    out[i] = x[i]", ONE),
    "an early return of nothing": ("foreach(out, lambda i: x[i])\nreturn", ONE),
    "a return of what gives nothing": ("return foreach(out, lambda i: x[i])", ONE),
    "a return of None": ("foreach(out, lambda i: x[i])\nreturn None", ONE),
}

RETURNED = {
    "an element": "return x[0]",
    "a number": "foreach(out, lambda i: x[i])\nreturn 1",
    "a tensor": "foreach(out, lambda i: x[i])\nreturn out",
    "a tuple": "return x[0], x[1]",
    "what a helper gives": "out[0] = x[0]\nreturn ignores(out, 3)",
    "on some ways": "out[0] = x[0]\nif x[0] > 0:\n    return x[1]\nreturn x[2]",
    "out of a loop": "out[0] = x[0]\nfor i in range(x.dim(0)):\n    if x[i] > 0:\n        return x[i]\nreturn x[0]",
    "a function": "out[0] = x[0]\nreturn lambda i: x[i]",
}


def errors_of(body: str, signature: str, folder: Path, target: str) -> list[tuple[str, int]]:
    body = dedent(body).replace("nothing(ignores(out, i))", "None if ignores(out, i) == 0 else None")
    path = folder / "stored.py"
    path.write_text(f'{HEAD}@register("op")\ndef op({signature}):\n{indent(body, "    ")}\n')
    actual = check_kernels(str(path), [target]).errors
    return [(error.code, error.place.line if error.place else 0) for error in actual]


LINE = HEAD.count("\n") + 2


@pytest.mark.parametrize("target", ["host", "sm_90a", "gfx942"])
def test_an_output_that_nothing_stores(target: str, tmp_path: Path) -> None:
    actual = {name: errors_of(*NEVER[name], tmp_path, target) for name in NEVER}
    if target != "host":  # what the host of a GPU cannot do is refused for that
        actual = {name: errors for name, errors in actual.items() if errors[0][0] != "EK0820"}
        assert len(actual) > len(NEVER) - 8
    assert actual == {name: [("EK0225", LINE)] for name in actual}


@pytest.mark.parametrize("target", ["host", "sm_90a", "gfx942"])
def test_every_way_of_storing_counts(target: str, tmp_path: Path) -> None:
    names = [name for name in STORED if target == "host" or "parallel" in STORED[name][0] or name in GPU]
    assert {name: errors_of(*STORED[name], tmp_path, target) for name in names} == {name: [] for name in names}


GPU = ("foreach", "foreach of two", "a view", "a launch", "scan", "rowwise", "sort", "stencil", "nothing to store")


@pytest.mark.parametrize("name", RETURNED)
def test_a_value_that_an_op_returns(name: str, tmp_path: Path) -> None:
    actual = errors_of(RETURNED[name], ONE, tmp_path, "host")
    assert actual and {code for code, _ in actual} == {"EK0226"}, actual
    assert all(line > LINE for _, line in actual)


def test_an_output_of_many(tmp_path: Path) -> None:
    """Of several tensors under one name, the one that nothing stores is named."""
    path = tmp_path / "many.py"
    path.write_text(
        'from einkorn.dsl import *\n\n\n@register("op")\n'
        'def op(outs: OutputVariadicTensors[float32, "n"], x: InputTensor[float32, "n"]):\n'
        "    foreach(outs[0], lambda i: x[i])\n"
    )
    (error,) = check_kernels(str(path)).errors
    assert error.code == "EK0225" and error.op == "op" and "'outs" in error.message
