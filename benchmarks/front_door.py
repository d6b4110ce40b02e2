"""What a call costs that goes through no graph: direct calls, models, ufuncs, PyTorch, JAX, numba, eager tensors.

    python benchmarks/front_door.py                 # the table, on standard output
    python benchmarks/front_door.py --rounds 15 --update   # and into docs/performance-of-calls.md
    python benchmarks/front_door.py direct torch    # some sections

Tensors of 64 float32. All contenders of a row run in one process, in turns (see `timed`); a figure is the best of all
turns: what else the machine does makes a call slower, and never faster. A peer that is not installed leaves its row
out. Each row has a bar: the figure, as a share of the peer's where there is one, that it shall not exceed.

See also `run.py` (the time of large calls).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import front_door_kernels as kernels
import numpy as np

from einkorn.compiler.codegen.llvm import compile_module
from einkorn.compiler.targets import host
from einkorn.dsl.package.findings import kept
from einkorn.dsl.package.library import loaded_kernel
from einkorn.graph import Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType
from einkorn.graph.driver.shared_library import SharedLibrary
from einkorn.graph.loading.background import BACKGROUND

PAGE = Path(__file__).parents[1] / "docs" / "performance-of-calls.md"
SIZE = 64
X, Y = np.arange(SIZE, dtype=np.float32), np.ones(SIZE, np.float32)


@dataclass
class CallRow:
    """Something that is called, and what it is compared with.

    Attributes:
        what: in words.
        bar: the most that it shall take: a share of the peer, or nanoseconds without one.
        more: the same as nanoseconds above the peer.
        shown: how figures are written, where they are no times.
        calls: what is timed by name, ours first, the peer second: statements.
        names: what the statements use.
        warm: how often each is called before.
    """

    what: str
    bar: float
    calls: Mapping[str, str]
    names: Mapping[str, Any]
    more: float | None = None
    per: int = 1
    warm: int = 30
    shown: Callable[[float], str] = field(default_factory=lambda: _shown)
    times: dict[str, float] = field(default_factory=dict)

    def settle(self, taken: Mapping[str, list[float]]) -> None:
        """Takes the times of all rounds, in seconds."""
        self.times = {name: min(samples) * 1e9 for name, samples in taken.items()}

    def result(self) -> tuple[str, bool]:
        """What is shown, and whether the bar is held."""
        ours, *peers = self.times.values()
        if self.more is not None:
            return f"+ {self.shown(ours - peers[0])}", ours - peers[0] <= self.more
        if not peers:
            return f"{self.shown(ours)}", ours <= self.bar
        return f"{ours / peers[0]:.2f} x", ours <= self.bar * peers[0]


def timed(row: CallRow, rounds: int) -> None:
    """The times of a row's calls in nanoseconds, in turns."""
    timers = {name: timeit.Timer(text, globals=dict(row.names)) for name, text in row.calls.items()}
    counts, taken = {}, {name: [] for name in timers}  # type: ignore[var-annotated]
    for name, timer in timers.items():
        timer.timeit(row.warm)
        BACKGROUND.wait()  # for doors
        timer.timeit(row.warm)
        counts[name] = max(1, int(0.004 / max(timer.timeit(20) / 20, 1e-8)))
    for _ in range(rounds):
        for name, timer in timers.items():
            taken[name].append(min(timer.repeat(3, counts[name])) / counts[name] / row.per)
    row.settle(taken)


# *** sections ***


def direct() -> Iterator[CallRow]:
    """`kernel(x)` on arrays of NumPy."""
    names = {"add_one": kernels.add_one, "x": X, "y": Y.copy(), "negative": np.negative}
    yield CallRow("`add_one(x)`, repeated", 0.75, {"add_one": "add_one(x)", "np.negative": "negative(x)"}, names)
    several = "add_one(x0); add_one(x1); add_one(x2); add_one(x3)"
    sizes = {f"x{k}": np.arange(SIZE - k, dtype=np.float32) for k in range(4)}
    same = {"changing": several, "unchanged": "add_one(x0); add_one(x0); add_one(x0); add_one(x0)"}
    yield CallRow("sizes that change", 1.2, same, {**names, **sizes}, per=4)
    yield CallRow("`out=`", 0, {"out=": "add_one(x, out=y)", "without": "add_one(x)"}, names, more=60)
    scaled = {"scaled": kernels.scaled, "x": X}
    keyword = {"by keyword": "scaled(x, scale=2.0)", "without": "scaled(x)"}
    yield CallRow("a parameter by keyword", 0, keyword, scaled, more=60)
    read = {"polynomial": kernels.polynomial, "add_one": kernels.add_one, "x": X}
    four = {"four": "polynomial(x)", "none": "add_one(x)"}
    yield CallRow("four variables that a kernel read", 0, four, read, more=60)
    view = {**names, "v": np.arange(2 * SIZE, dtype=np.float32)[::2]}
    yield CallRow("a view", 0.75, {"add_one": "add_one(v)", "np.negative": "negative(v)"}, view)
    yield CallRow("a `Buffer`", 4000, {"add_one": "add_one(b)"}, {**names, "b": Buffer.from_numpy(X)})
    large = {**names, "x": np.ones(1 << 18, np.float32)}
    yield CallRow("an output of 1 MiB", 1.2, {"add_one": "add_one(x)", "np.negative": "negative(x)"}, large)
    tuned = {"total": kernels.total, "x": X}
    said = {"tuned": "total(x)", "the parameter said": f"total(x, width={_tuned_width()})"}
    yield CallRow(_TUNED, 0, said, tuned, more=60)
    number = {"axpy": kernels.axpy, "x": X, "y": Y}
    yield CallRow("a number of Python's", 4000, {"axpy": "axpy(2.0, x, y)"}, number)
    scalar = {**number, "a": np.float32(2)}
    yield CallRow(
        "a number of NumPy's", 0, {"NumPy's": "axpy(a, x, y)", "Python's": "axpy(2.0, x, y)"}, scalar, more=60
    )


_TUNED = "a tuned kernel, compared with the same call with its parameter"


def _tuned_width() -> Any:
    """The parameter that is best for `total`, after a call that tunes it."""
    kernels.total(X)
    return dict(kept(loaded_kernel(kernels.total).digest)[0].parameters)["width"]


def broadcasting() -> Iterator[CallRow]:
    """`kernel(matrix, row)` on arrays of NumPy."""
    matrix = X.reshape(8, 8)
    names = {"plus": kernels.plus, "add": np.add, "m": matrix, "row": matrix[0].copy(), "column": matrix[:, :1].copy()}
    for what, other in (("a row", "row"), ("a column", "column"), ("a number", "2.0")):
        calls = {"plus": f"plus(m, {other})", "np.add": f"add(m, {other})"}
        yield CallRow(f"a matrix and {what} broadcast", 1.0, calls, names)


def complex_numbers() -> Iterator[CallRow]:
    """Complex numbers: a small array, and 1 Mi of them into memory that is given."""
    small, large = (np.exp(1j * np.arange(size)).astype(np.complex64) for size in (SIZE, 1 << 20))
    names = {"times": kernels.times, "multiply": np.multiply, "z": small}
    yield CallRow("complex numbers", 1.0, {"times": "times(z, z)", "np.multiply": "multiply(z, z)"}, names)
    for what, kernel, peer, z, out in (
        ("products", kernels.times, np.multiply, (large, large), large.copy()),
        ("quotients", kernels.quotient, np.divide, (large, large), large.copy()),
        ("absolute values", kernels.modulus, np.abs, (large,), large.real.copy()),
    ):
        calls = {kernel.__name__: "ours(*z, out=out)", f"np.{peer.__name__}": "peer(*z, out=out)"}
        yield CallRow(f"1 Mi complex numbers, {what}", 1.2, calls, {"ours": kernel, "peer": peer, "z": z, "out": out})


def layouts() -> Iterator[CallRow]:
    """Arrays and tensors of other layouts than row-major: small ones, and of 1 Mi elements."""
    small, large = X.reshape(8, 8).T, np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024).T
    images = np.arange(1 << 20, dtype=np.float32).reshape(16, 32, 32, 64).transpose(0, 3, 1, 2)
    names = {"plus": kernels.plus, "add": np.add}
    for what, x, y in (
        ("transposed arrays", small, small),
        ("1 Mi transposed", large, large),
        ("1 Mi, channels last", images, images),
        ("1 Mi transposed, and a number", large, 2.0),
        ("1 Mi, one of two transposed", large, np.ascontiguousarray(large)),
    ):
        yield CallRow(what, 1.2, {"plus": "plus(x, y)", "np.add": "add(x, y)"}, {**names, "x": x, "y": y})
    square, turned = (TensorType(DType.float32, dims, DeviceRef.CPU()) for dims in (["n", "m"], ["m", "n"]))
    names = {"x": np.ascontiguousarray(large), "add": np.add, "copy": np.ascontiguousarray}
    model = InferenceSession().load(Graph("sum", lambda x, y: x + y.transpose(0, 1), [square, turned]))
    calls = {"model": "model(x, x)", "np.add": "add(x, x.T)"}
    yield CallRow("a graph of 1 Mi, `x + y.transpose(0, 1)`", 1.2, calls, {**names, "model": model})
    model = InferenceSession().load(Graph("copy", lambda x: x.transpose(0, 1), [square]))
    calls = {"model": "model(x)", "np.ascontiguousarray": "copy(x.T)"}
    yield CallRow("a graph of 1 Mi, `x.transpose(0, 1)`", 1.2, calls, {**names, "model": model})


def torch_layouts() -> Iterator[CallRow]:
    """Channels-last tensors of PyTorch, next to its own op and the code of inductor."""
    import einkorn.torch
    import torch

    op, compiled = einkorn.torch.op(kernels.plus), torch.compile(lambda x, y: x + y)
    large = torch.arange(1 << 20, dtype=torch.float32)
    images = large.reshape(16, 64, 32, 32).to(memory_format=torch.channels_last)
    for what, x in (("transposed", large.reshape(1024, 1024).T), ("channels last", images)):
        calls = {"op": "op(x, x)", "inductor": "compiled(x, x)", "torch.add": "add(x, x)"}
        names = {"op": op, "compiled": compiled, "add": torch.add, "x": x}
        yield CallRow(f"torch, 1 Mi, {what}", 1.2, calls, names)
    calls = {"op": "op(x, x.T)", "inductor": "compiled(x, x.T)", "torch.add": "add(x, x.T)"}
    names = {"op": op, "compiled": compiled, "add": torch.add, "x": large.reshape(1024, 1024)}
    yield CallRow("torch, 1 Mi, one of two transposed", 1.2, calls, names)


def models() -> Iterator[CallRow]:
    """`model(x)`."""
    graph = Graph("tiny", lambda x: x + 1.0, _vector_type())
    model = InferenceSession().load(graph)
    yield CallRow("`model(x)`", 800, {"model": "model(x)"}, {"model": model, "x": X})
    yield CallRow("`model(buffer)`", 800, {"model": "model(x)"}, {"model": model, "x": Buffer.from_numpy(X)})
    types = [TensorType(DType.float32, shape, DeviceRef.CPU()) for shape in (["n", 4], [4, 4])]
    between = InferenceSession().load(Graph("between", lambda x, w: (x @ w + 1.0) @ w, types))
    names = {"model": between, "w": np.eye(4, dtype=np.float32)}
    names |= {f"x{k}": np.ones((16 - k, 4), np.float32) for k in range(4)}
    yield CallRow("`model(x, w)`, with an intermediate result in memory", 1500, {"model": "model(x0, w)"}, names)
    several = "model(x0, w); model(x1, w); model(x2, w); model(x3, w)"
    same = {"changing": several, "unchanged": "model(x0, w); model(x0, w); model(x0, w); model(x0, w)"}
    yield CallRow("the same, with sizes that change", 1.2, same, names, per=4)
    number = [*_vector_type(), TensorType(DType.float32, [], DeviceRef.CPU())]
    scaled = InferenceSession().load(Graph("scaled", lambda x, a: x * a, number))
    names = {"scaled": scaled, "model": model, "x": X, "a": np.float32(2)}
    for what, given in (("Python's", "2.0"), ("NumPy's", "a")):
        calls = {what: f"scaled(x, {given})", "without": "model(x)"}
        yield CallRow(f"`model(x, number)`, a number of {what}", 0, calls, names, more=60)
    names = {"model": model, "plus": np.add, "x": np.arange(1 << 18, dtype=np.float32), "one": np.float32(1)}
    yield CallRow("`model(x)`, 1 MiB", 1.0, {"model": "model(x)", "np.add": "plus(x, one)"}, names)


def _vector_type() -> list[TensorType]:
    return [TensorType(DType.float32, ["n"], DeviceRef.CPU())]


def ufuncs() -> Iterator[CallRow]:
    """`kernel.ufunc(x)`."""
    names = {"add_one": kernels.add_one, "negative": np.negative, "x": X}
    calls = {"ufunc": "add_one.ufunc(x)", "np.negative": "negative(x)"}
    yield CallRow("`add_one.ufunc(x)`, as written", 1.15, calls, names)


def with_numba() -> Iterator[CallRow]:
    """Next to numba, and within its functions."""
    import einkorn.numba
    import numba

    @numba.njit
    def add(x: Any, y: Any) -> Any:
        out = np.empty_like(x)
        for i in range(x.size):
            out[i] = x[i] + y[i]
        return out

    names = {"ours": kernels.add, "njit": add, "x": X, "y": Y}
    yield CallRow("two inputs with a shared dim", 0.35, {"add": "ours(x, y)", "numba njit": "njit(x, y)"}, names)
    increase = einkorn.numba.function(kernels.increase)

    @numba.njit
    def calls(x: Any, rounds: int) -> None:
        for _ in range(rounds):
            increase(x)

    total, width = einkorn.numba.function(kernels.total), _tuned_width()
    said = einkorn.numba.function(kernels.total, width=width)

    def sums(function: Any) -> Any:
        @numba.njit
        def all_sums(x: Any, rounds: int) -> float:
            total = 0.0
            for _ in range(rounds):
                total += function(x)[0]
            return total

        return all_sums

    names = {"tuned": sums(total), "said": sums(said), "x": X}
    both = {"tuned": "tuned(x, 1000)", "the parameter said": "said(x, 1000)"}
    yield CallRow(f"within `@njit`, {_TUNED}", 0, both, names, more=60, per=1000)
    within = {"calls": calls, "x": X[:0].copy()}
    yield CallRow(
        "within `@njit`, an empty array, changed in place", 10, {"function": "calls(x, 1000)"}, within, per=1000
    )


def with_torch() -> Iterator[CallRow]:
    """Ops of PyTorch."""
    import einkorn.torch
    import torch

    op = einkorn.torch.op(kernels.add_one)

    @torch.library.custom_op("frontdoor::nothing", mutates_args=(), schema="(Tensor x) -> Tensor")
    def nothing(x: Any) -> Any:
        return torch.empty_like(x)

    nothing.register_fake(torch.empty_like)
    names = {"op": op, "nothing": nothing, "t": torch.from_numpy(X.copy())}
    other = "an op that does nothing"
    yield CallRow(f"torch, eager, compared with {other}", 0.25, {"op": "op(t)", "`custom_op`": "nothing(t)"}, names)
    native = _cpp_op()
    if native is not None:
        other = "an op in C++ with `at::empty`"
        yield CallRow(
            f"torch, eager, compared with {other}",
            1.15,
            {"op": "op(t)", "C++": "native(t)"},
            names | {"native": native},
        )

    yield from _torch_calls(names)

    def compiled(inner: Callable[[Any], Any], count: int) -> Any:
        def chain(t: Any) -> Any:
            for _ in range(count):
                t = inner(t)
            return t

        return torch.compile(chain, fullgraph=True)

    contenders, counts = (("an op", op), ("`custom_op` that does nothing", nothing)), (1, 1 + _Further.OPS)
    chains = {f"chain{k}_{n}": compiled(each, n) for k, (_, each) in enumerate(contenders) for n in counts}
    texts = {f"{name}, {n}": f"chain{k}_{n}(t)" for k, (name, _) in enumerate(contenders) for n in counts}
    yield _Further("torch, an op inside a compiled graph", 0.25, texts, {**chains, "t": names["t"]})


def _torch_calls(names: Mapping[str, Any]) -> Iterator[CallRow]:
    """Calls of other kinds than the first one, next to that: views, in place, lists, further dtypes and parameters."""
    import einkorn.torch
    import torch

    t, table = names["t"], torch.ones(8, 8)
    increase, scaled, total, twice = map(
        einkorn.torch.op, (kernels.increase, kernels.scaled, kernels.sum_of_list, kernels.twice)
    )
    twice.backward(lambda context, grad: twice(grad))
    dtypes = [torch.float64, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bfloat16]
    for dtype in dtypes:
        names["op"](torch.ones(SIZE, dtype=dtype))
    for k in range(8):
        scaled(t, scale=float(k))
    more = {**names, "increase": increase, "scaled": scaled, "total": total, "twice": twice, "table": table}
    more |= {"view": table.T, "steps": torch.ones(2 * SIZE)[::2], "mine": t.clone(), "eighth": 7.0}
    more |= {"moved": einkorn.torch.op(kernels.moved), "half": einkorn.torch.op(kernels.first_half)}
    more |= {"clamped": einkorn.torch.op(kernels.clamped), "times": einkorn.torch.op(kernels.times)}
    more["z"] = torch.ones(SIZE, dtype=torch.complex64)
    more |= {"last": torch.ones(SIZE, dtype=dtypes[-1]), "parts": torch.ones(2 * SIZE)[::2], "direct": kernels.add_one}
    calls = {
        "transposed": ("op(view)", "op(table)"),
        "every second element": ("op(steps)", "op(t)"),
        "in place": ("increase(mine)", "op(t)"),
        "in place, every second element": ("increase(parts)", "op(t)"),
        "a list of two tensors": ("total([t, t])", "op(t)"),
        "a seventh dtype": ("op(last)", "op(t)"),
        "complex numbers": ("times(z, z)", "op(t)"),
        "an eighth value of a parameter": ("scaled(t, scale=eighth)", "op(t)"),
        "a text parameter": ("moved(t, way='down')", "op(t)"),
        "sizes of `@op.shape`": ("half(t)", "op(t)"),
        "a number that may be an integer": ("clamped(t, 3)", "op(t)"),
        "an op with a backward": ("twice(t)", "op(t)"),
    }
    for what, (call, plain) in calls.items():
        yield CallRow(f"torch, {what}, compared with a contiguous tensor", 2, {"op": call, "contiguous": plain}, more)
    tuned, width = einkorn.torch.op(kernels.total), _tuned_width()
    both = {"tuned": "tuned(t)", "the parameter said": f"tuned(t, width={width})"}
    yield CallRow(f"torch, {_TUNED}", 0, both, {"tuned": tuned, "t": t}, more=60)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.nbytes) or x, lambda x: x):
        twice(torch.ones(1000, requires_grad=True))
    what = "torch, autograd keeps of an op whose backward reads the gradient alone"
    yield CallRow(what, 0, {}, {}, times={"twice": sum(saved)}, shown=lambda size: f"{size:.0f} bytes")


class _Further(CallRow):
    """What each further op takes in a chain: its calls come in pairs, of chains with few ops and with `OPS` more."""

    OPS = 40

    def settle(self, taken: Mapping[str, list[float]]) -> None:
        names = list(taken)
        self.times = {}
        for few, many in zip(names[::2], names[1::2], strict=True):
            self.times[few.rpartition(",")[0]] = (min(taken[many]) - min(taken[few])) / self.OPS * 1e9


_CPP = """
#include <torch/extension.h>
at::Tensor add_one(const at::Tensor &x) {
  auto out = at::empty(x.sizes(), x.options());
  const float *from = x.data_ptr<float>();
  float *to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] + 1;
  return out;
}
TORCH_LIBRARY(frontdoor_cpp, m) { m.def("add_one(Tensor x) -> Tensor"); m.impl("add_one", c10::kCPU, &add_one); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
"""


def _cpp_op() -> Any:
    """The op in C++, where a compiler is there."""
    import torch
    from torch.utils import cpp_extension

    try:
        with tempfile.TemporaryDirectory() as folder:
            cpp_extension.load_inline("frontdoor_cpp", _CPP, build_directory=folder, extra_cflags=["-O2"])
    except Exception as error:
        print(f"no op in C++: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    return torch.ops.frontdoor_cpp.add_one.default


def with_jax() -> Iterator[CallRow]:
    """Within programs of JAX: calls one behind the other, next to a handler that does nothing."""
    import einkorn.jax
    import jax

    f, x = einkorn.jax.op(kernels.add_one), jax.numpy.asarray(X)
    library = _nothing_of_xla()
    jax.ffi.register_ffi_target("frontdoor", jax.ffi.pycapsule(library.address("nothing")), platform="cpu")

    def nothing(x: Any) -> Any:
        return jax.ffi.ffi_call("frontdoor", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    def chain(call: Callable[[Any], Any]) -> Any:
        def many(_: int, x: Any) -> Any:
            for _ in range(20):
                x = call(x)
            return x

        return jax.jit(lambda x: jax.lax.fori_loop(0, 50, many, x))

    names = {"ours": chain(f), "nothing": chain(nothing), "x": x}
    texts = {"a call": "ours(x).block_until_ready()", "a handler that does nothing": "nothing(x).block_until_ready()"}
    yield CallRow("JAX, a call inside `jit`", 0, texts, names, more=60, per=1000)


_NOTHING = """
define ptr @nothing(ptr %frame) {
  %extension.at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension.at
  %extended = icmp ne ptr %extension, null
  br i1 %extended, label %answer, label %leave
answer:
  %metadata.at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata.at
  %major = getelementptr i8, ptr %metadata, i64 24
  store i32 0, ptr %major
  %minor = getelementptr i8, ptr %metadata, i64 28
  store i32 3, ptr %minor
  br label %leave
leave:
  ret ptr null
}
"""


def _nothing_of_xla() -> SharedLibrary:
    """A handler of XLA's that says which version it is, and does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nothing.so"
        path.write_bytes(compile_module(_NOTHING, host(), level=2).link("nothing.so"))
        return SharedLibrary(path)


def eager() -> Iterator[CallRow]:
    """Tensors."""
    from einkorn.tensor import Tensor

    from einkorn import functional as F
    from einkorn.graph.eager.realize import MEETINGS

    x = Tensor.constant(X)  # memory of its own
    lazy = "with lazy():\n    for _ in range(400):\n        y = x + x"
    names = {"x": x, "lazy": F.lazy, "F": F}
    add = {"x + x": "x + x", "np.add": "add(a, a)"}
    yield CallRow("eager tensors: an op runs", 4, add, {"x": x, "a": X, "add": np.add})
    yield CallRow("eager tensors: an op is recorded", 400, {"record": lazy}, names, per=400)

    def three(t: Any) -> Any:
        return (t + t) * t - t

    def loop(t: Any) -> Any:
        for _ in range(2000):
            t = t * 0.999 + 0.001
        return t

    three_ops = F.functional(three) if hasattr(F, "functional") else three
    yield CallRow("eager tensors: three ops", 12_000, {"three": "three(x)"}, {"three": three_ops, "x": x}, warm=60)

    def lazily(t: Any) -> Any:
        with F.lazy():
            result = loop(t)
        return result.numpy()

    for _ in range(MEETINGS):
        lazily(x)
    BACKGROUND.wait()  # what follows is the loop once its parts are compiled, which a thread next to does
    yield CallRow(
        "eager tensors: an op of 4000 in a loop", 4000, {"loop": "f(x)"}, {"f": lazily, "x": x}, per=4000, warm=2
    )


_FIRST = """
import time; start = time.perf_counter()
import sys; sys.path.insert(0, {folder!r})
import numpy as np
from front_door_kernels import add_one
add_one(np.ones(64, np.float32))
end = time.perf_counter()
for _ in range(3): add_one(np.ones(64, np.float32))
loaded = {{name.split(".")[0] for name in list(sys.modules)}} & {{"llvmlite", "torch_mlir", "mlir"}}
print(end - start, ",".join(sorted(loaded)))
"""


def first() -> Iterator[CallRow]:
    """The first result of a process, with all imports."""
    with tempfile.TemporaryDirectory() as folder:
        text = _FIRST.format(folder=str(Path(__file__).parent))
        environment = {**os.environ, "EINKORN_CACHE_DIR": folder}

        def run() -> float:
            command = [sys.executable, "-c", text]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            took, _, loaded = done.stdout.strip().partition(" ")
            if loaded:
                imported.append(loaded)
            return float(took)

        imported: list[str] = []
        cold = []
        for number in range(3):
            environment["EINKORN_CACHE_DIR"] = str(Path(folder, f"cache{number}"))
            cold.append(run())
        imported.clear()
        warm = [run() for _ in range(3)]
        note = f" (loads {imported[0]})" if imported else ", neither MLIR nor LLVM"
        for what, bar, took in (("cold", 800e6, min(cold)), (f"warm{note}", 400e6, min(warm))):
            yield CallRow(
                f"first result of a process, {what}", bar, {"process": "pass"}, {}, times={"process": took * 1e9}
            )


_LATER = """
import sys, time
sys.path.insert(0, {folder!r})
import numpy as np
import front_door_kernels as kernels
x = np.ones(64, np.float32)
{setting}
slowest = 0
call()
for _ in range(200):
    start = time.perf_counter_ns()
    call()
    slowest = max(slowest, time.perf_counter_ns() - start)
print(slowest)
"""
_SETTINGS = {
    "a direct call": "call = lambda: kernels.add_one(x)",
    "`model(x)`": """
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType
graph = Graph("tiny", lambda x: x + 1.0, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
model = InferenceSession().load(graph)
call = lambda: model(x)""",
    "an eager op": "from einkorn.tensor import Tensor; t = Tensor.constant(x); call = lambda: t + t",
    "an op of PyTorch": "import einkorn.torch, torch; op, t = einkorn.torch.op(kernels.add_one), torch.ones(64)\n"
    "call = lambda: op(t)",
}


def later() -> Iterator[CallRow]:
    """The slowest of the calls behind the first one, with nothing in the cache: the best of several processes."""
    for what, setting in _SETTINGS.items():
        if "PyTorch" in what and importlib.util.find_spec("torch") is None:
            continue
        times: dict[str, float] = {}
        compiled = tempfile.mkdtemp()  # Python's own code, as an installed package has it
        python = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        text = _LATER.format(folder=str(Path(__file__).parent), setting=setting)
        for number in range(6):
            for name, doors in (("with doors", "1"), ("EINKORN_DOORS=0", "0")):
                with tempfile.TemporaryDirectory() as folder:
                    environment = {**os.environ, **python, "EINKORN_CACHE_DIR": folder, "EINKORN_DOORS": doors}
                    command = [sys.executable, "-c", text]
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                if number:
                    times[name] = min(times.get(name, 1e18), float(done.stdout))
        shutil.rmtree(compiled)
        yield CallRow(f"{what}, the slowest of the calls 2 to 200", 0, {}, {}, more=1e6, times=times)


SECTIONS: dict[str, tuple[Callable[[], Iterator[CallRow]], str]] = {
    "direct": (direct, ""),
    "broadcasting": (broadcasting, ""),
    "complex": (complex_numbers, ""),
    "layouts": (layouts, ""),
    "torch_layouts": (torch_layouts, "torch"),
    "models": (models, ""),
    "ufuncs": (ufuncs, ""),
    "numba": (with_numba, "numba"),
    "torch": (with_torch, "torch"),
    "jax": (with_jax, "jax"),
    "eager": (eager, ""),
    "first": (first, ""),
    "later": (later, ""),
}


def _shown(time: float) -> str:
    if time < 10_000:
        return f"{time:.0f} ns" if abs(time) >= 10 else f"{time:.1f} ns"
    return f"{time / 1e3:.1f} µs" if time < 1e6 else f"{time / 1e6:.0f} ms"


def lines(names: list[str], rounds: int) -> Iterator[str]:
    """The table."""
    yield "| what | bar | measured | |"
    yield "|---|---|---|---|"
    for name in names:
        make, needs = SECTIONS[name]
        if needs and importlib.util.find_spec(needs) is None:
            print(f"{needs} is not installed", file=sys.stderr)
            continue
        for row in make():
            if not row.times:
                timed(row, rounds)
            shown, holds = row.result()
            bar = f"≤ + {row.shown(row.more)}" if row.more is not None else f"≤ {row.bar} x"
            if row.more is None and len(row.times) == 1:
                bar = f"≤ {row.shown(row.bar)}"
            others = ", ".join(f"{name} {row.shown(took)}" for name, took in row.times.items())
            yield f"| {row.what} | {bar} | {shown}{'' if holds else ' **above**'} | {others} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="all when left out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--update", action="store_true", help="write the table into docs/performance-of-calls.md")
    options = parser.parse_args()
    start, written = time.monotonic(), []
    for line in lines(options.sections or list(SECTIONS), options.rounds):
        print(line, flush=True)
        written.append(line)
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)
    if options.update:
        head = PAGE.read_text().partition("| what |")[0]
        PAGE.write_text(head + "\n".join(written) + "\n")


if __name__ == "__main__":
    main()
