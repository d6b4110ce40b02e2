"""Kernels as ops of PyTorch: eager, compiled, exported; what goes wrong."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import einkorn.torch as ek
from torch._dynamo.testing import CompileCounterWithBackend
from torch.library import opcheck
from torch.testing import assert_close

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.dsl.diagnostics.errors import DeviceError, DTypeError, GraphError, KernelError, PackageError
from einkorn.dsl.package.library import load_library
from einkorn.dsl.signature.schema import Form
from einkorn.graph.interop.torch.tensors import TORCH_DTYPES

from . import direct_kernels as k


@register("table")
def table(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m"], y: InputTensor[float32, "n"]):
    def element(index):
        i, j = index
        return x[i] * y[j]

    foreach(out, element)


@register("repeated")
def repeated(out: OutputTensor[float32, "n k"], x: InputTensor[float32, "n"], *, k: int):
    foreach(out, lambda i: x[i[0]])


ROWS = torch.arange(12.0).reshape(3, 4)


def test_an_op_is_a_function_of_tensors():
    op = ek.op(k.add_one)
    assert ek.op(k.add_one) is op and "add_one" in repr(op) and op.__doc__ == "Adds one to every element."
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8):
        assert_close(op(ROWS.to(dtype)), ROWS.to(dtype) + 1)
    for x in (ROWS.T, ROWS[:, ::2], ROWS[1:, 1:], torch.zeros(0, 3), torch.tensor(2.0), ROWS[:1].expand(5, 4)):
        actual = op(x)
        assert_close(actual, x + 1)
        assert actual.stride() == (x + 1).stride() and type(actual) is torch.Tensor


def test_signatures_of_all_kinds():
    x = torch.tensor([1.0, -2.0, 3.0])
    assert_close(ek.op(k.scale_and_shift)(x, scale=2.0, shift=1.0), 2 * x + 1)
    assert_close(ek.op(k.axpy)(2, x, x), 3 * x)
    assert_close(ek.op(k.axpy)(0.5, x.double(), x.double()), 1.5 * x.double())
    assert_close(ek.op(table)(x, torch.ones(2)), x[:, None].expand(3, 2))
    low, high = ek.op(k.halves)(x)
    assert (low.tolist(), high.tolist()) == ([1.0], [-2.0, 3.0])
    assert_close(ek.op(repeated)(x, k=2), x[:, None].expand(3, 2))
    assert_close(ek.op(k.total_of)([x, x, x]), 3 * x)
    assert [t.tolist() for t in ek.op(k.spread)(x, count=2)] == [[1.0, -2.0, 3.0], [2.0, -1.0, 4.0]]
    assert ek.op(k.kept)(x).tolist() == [1.0, 3.0]


def test_arguments_are_changed_in_place():
    mean, x = torch.zeros(3), torch.ones(3)
    version = mean._version
    assert ek.op(k.follow)(mean, x, 0.5) is None
    assert mean.tolist() == [0.5] * 3 and mean._version > version
    change = ek.op(k.follow_and_return)(mean, x)
    assert change.tolist() == [0.25] * 3 and mean.tolist() == [0.75] * 3
    with pytest.raises(GraphError, match="shares memory"):
        ek.op(k.follow)(x, x, 0.5)
    assert x.tolist() == [1.0] * 3


CASES = [
    (k.add_one, (ROWS,), {}),
    (k.scale_and_shift, (ROWS,), {"scale": 2.0}),
    (k.axpy, (2, ROWS[0], ROWS[1]), {}),
    (k.follow_and_return, (torch.zeros(3), torch.ones(3)), {}),
    (k.follow, (torch.zeros(3), torch.ones(3), 0.5), {}),
    (k.halves, (ROWS[0],), {}),
    (k.pairs, (ROWS[0, :2], ROWS[1]), {}),
    (repeated, (ROWS[0],), {"k": 2}),
    (k.total_of, ([ROWS[0], ROWS[1]],), {}),
    (k.spread, (ROWS[0],), {"count": 2}),
    (k.kept, (ROWS[0],), {}),
]


@pytest.mark.parametrize(("kernel", "args", "parameters"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_opcheck(kernel, args, parameters):
    fresh = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    actual = opcheck(ek.op(kernel).torch, fresh, parameters)
    assert set(actual.values()) == {"SUCCESS"}


EXAMPLES = Path(__file__).parents[2] / "examples" / "custom_ops" / "kernels"
OF_EXAMPLES = {
    "add_one": (torch.randn(3, 4),),
    "add_constant": (torch.randn(3, 4),),
    "vector_addition": (torch.randn(5), torch.randn(5)),
    "grayscale": (torch.randint(0, 256, (4, 5, 3), dtype=torch.uint8),),
    "brightness": (torch.rand(4, 5) * 255,),
    "blur": (torch.randn(8, 9),),
    "histogram": (torch.randint(0, 256, (7, 5), dtype=torch.uint8),),
    "matrix_multiplication": (torch.randn(3, 4), torch.randn(4, 5)),
    "tiled_products": (torch.randn(20, 10), torch.randn(10, 9), torch.randn(1, 9)),
    "layer_norm": (torch.randn(3, 4), torch.randn(4), torch.randn(4)),
    "row_softmax": (torch.randn(3, 4),),
}


@pytest.mark.parametrize("name", load_library(EXAMPLES).kernels)
def test_opcheck_of_the_examples(name):
    library = load_library(EXAMPLES)
    schema = library.kernels[name].schema
    given = {p.name: {"int": 2, "float": 1.5}[p.kind] for p in schema.parameters if p.required}
    args = OF_EXAMPLES.get(name)
    if args is None:  # numbers and pictures of one's own
        args = tuple(
            2
            if a.form is Form.SCALAR
            else torch.zeros([4] * len(a.dims.split()), dtype=TORCH_DTYPES[schema.allowed(a.dtype)[0]])
            for a in schema.inputs
        )
    actual = opcheck(ek.op(name, extensions=[EXAMPLES]).torch, args, given)
    assert set(actual.values()) == {"SUCCESS"}


def test_one_compiled_graph_serves_all_sizes():
    op, shift = ek.op(k.add_one), ek.op(k.scale_and_shift)
    counter = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()

    def model(x, y):
        return shift(op(x * 2) + y, scale=3.0) - 1

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for n in (2, 3, 5, 8, 13):
        x = torch.arange(float(n))
        assert_close(compiled(x, x), (x * 2 + 1 + x) * 3 - 1)
    assert counter.frame_count == 1


def test_compiled_by_inductor():  # of ops alone: for anything else a C++ compiler would run for long
    op, halves = ek.op(k.add_one), ek.op(k.halves)
    compiled = torch.compile(lambda x: [op(t) for t in halves(op(x))], fullgraph=True)
    for n in (4, 7):
        x = torch.linspace(0, 1, n)
        assert_close(torch.cat(compiled(x)), x + 2)


def test_exported_programs_have_the_op():
    op = ek.op(k.pairs)

    class Module(torch.nn.Module):
        def forward(self, x):
            return op(x, torch.cat([x, x]))

    n = torch.export.Dim("n", min=2)
    program = torch.export.export(Module(), (torch.ones(4),), dynamic_shapes={"x": {0: n}})
    assert any(node.target is op.torch for node in program.graph.nodes)
    assert_close(program.module()(torch.ones(6)), 2 * torch.ones(6))


def test_vmap():
    x, y = torch.rand(5, 3, 4), torch.rand(4)
    double = torch.vmap(ek.op(k.scale_and_shift), in_dims=1)
    calls = []
    fallback = ek.op(k.scale_and_shift)._registered.fallback
    run, fallback.run = fallback.run, lambda call: calls.append(call) or run(call)
    assert torch.equal(double(x, scale=2.0), (x * 2).movedim(1, 0)) and len(calls) <= 1  # by a further axis
    del fallback.run
    added = torch.vmap(ek.op(k.add), in_dims=(0, None))(x[:, 0], y)  # one after the other
    assert torch.equal(added, x[:, 0] + y)
    low, high = torch.vmap(ek.op(k.halves), in_dims=1, out_dims=1)(x[:, 0])
    assert torch.equal(torch.cat([low, high]), x[:, 0])
    total = torch.vmap(ek.op(k.total_of), in_dims=([0, None],))([x[:, 0], y])
    assert torch.equal(total, x[:, 0] + y)
    spread = torch.vmap(lambda t: ek.op(k.spread)(t, count=2))(x[:, 0])
    assert [t.shape for t in spread] == [(5, 4)] * 2
    assert torch.vmap(ek.op(k.halves))(torch.rand(0, 5))[1].shape == (0, 3)
    twice = torch.vmap(torch.vmap(ek.op(k.add_one), in_dims=1), in_dims=2)(x)
    assert torch.equal(twice, (x + 1).permute(2, 1, 0))


def test_late_sizes_are_unknown_in_compiled_programs():
    op = ek.op(k.kept)
    compiled = torch.compile(lambda x: op(x) * 2, fullgraph=True, backend="aot_eager")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert compiled(torch.tensor([1.0, -1.0, 3.0])).tolist() == [2.0, 6.0]


def test_tensors_of_other_kinds():
    op = ek.op(k.add_one)
    negative = torch._neg_view(ROWS)
    assert negative.is_neg() and torch.equal(op(negative), 1 - ROWS)
    with torch.inference_mode():
        assert torch.equal(op(ROWS), ROWS + 1)
        mean = torch.zeros(3)
        ek.op(k.follow)(mean, torch.ones(3), 0.5)
        assert mean.tolist() == [0.5] * 3
    assert torch.equal(op(torch.nn.Parameter(ROWS, requires_grad=False)), ROWS + 1)

    class Named(torch.Tensor):
        pass

    assert type(op(ROWS.as_subclass(Named))) is Named and type(k.add_one(ROWS.as_subclass(Named))) is Named
    with torch._subclasses.FakeTensorMode() as mode:
        fake = op(mode.from_tensor(ROWS))
    assert isinstance(fake, torch._subclasses.FakeTensor) and fake.shape == ROWS.shape
    assert op(ROWS.to("meta")).device.type == "meta"
    assert op(torch.empty(0, 5)).shape == (0, 5)


def test_a_gradient_is_not_lost():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(GraphError, match=r"argument 'x' requires a gradient") as caught:
        ek.op(k.add_one)(x)
    assert caught.value.code == "EK0881" and caught.value.place.file == __file__
    with torch.no_grad():
        assert ek.op(k.add_one)(x).tolist() == [2.0] * 3
    assert ek.op(k.add_one)(x.detach()).tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("kernel", "call", "error", "code", "text"),
    [
        (k.add_one, lambda op: op(ROWS, ROWS), GraphError, "EK0310", r"takes 1 argument \(x\), but got 2"),
        (k.add_one, lambda op: op(), GraphError, "EK0310", r"takes 1 argument \(x\), but got 0"),
        (k.scale_and_shift, lambda op: op(ROWS, 2.0), GraphError, "EK0310", "but got 2"),
        (k.scale_and_shift, lambda op: op(ROWS, scle=2.0), GraphError, "EK0320", "no parameter 'scle'"),
        (k.scale_and_shift, lambda op: op(ROWS, scale="a"), GraphError, "EK0322", "'scale' is float"),
        (
            k.add_one,
            lambda op: op(ROWS.to_sparse()),
            DTypeError,
            "EK0452",
            "a dense .*, not one of layout .*_coo",
        ),
        (k.add_one, lambda op: k.add_one(ROWS, out=ROWS), GraphError, "EK0462", "op 'add_one': .* memory with 'x'"),
        (k.follow, lambda op: op(ROWS[0], ROWS[0], 0.5), GraphError, "EK0462", "op 'follow': 'mean' is changed"),
        (k.add_one, lambda op: op([1.0]), DTypeError, "EK0452", r"takes a torch.Tensor, not \[1.0\]"),
        (k.scale_and_shift, lambda op: op(ROWS.int()), DTypeError, "EK0316", "'x' has dtype int32"),
        (k.add_one, lambda op: op(ROWS.to(torch.complex64)), DTypeError, "EK0316", "torch.complex64"),
        (k.outer, lambda op: op(ROWS, ROWS[0]), GraphError, "EK0311", "'x' has rank 2"),
        (k.pairs, lambda op: op(ROWS[0], ROWS[1]), GraphError, "EK0313", "'twice' has size 4"),
    ],
)
def test_bad_arguments(kernel, call, error, code, text):
    with pytest.raises(error, match=text) as caught:
        call(ek.op(kernel))
    assert (caught.value.code, caught.value.op) == (code, kernel.schema.name)
    assert caught.value.place.file == __file__


def test_wrong_sizes_in_compiled_programs():
    op = ek.op(k.add)
    compiled = torch.compile(lambda x, y: op(x, y), fullgraph=True, dynamic=True, backend="aot_eager")
    assert compiled(torch.ones(3), torch.ones(3)).tolist() == [2.0] * 3
    with pytest.raises(Exception, match=r"dim 'n' is"):
        compiled(torch.ones(3), torch.ones(4))


def test_a_failing_kernel_raises_and_the_process_lives():
    op = ek.op(k.in_parallel)
    bad = torch.ones(100_000)
    bad[77_777] = -1

    def check(call):
        with pytest.raises(KernelError, match=r"error\[EK0701\]: .* elements have to be positive") as caught:
            call(bad)
        assert "direct_kernels.py" in str(caught.value) and "op 'in_parallel' was called" in str(caught.value)
        assert call(torch.ones(5)).tolist() == [1.0] * 5

    check(op)
    check(torch.compile(op, fullgraph=True, dynamic=True))
    failed = []

    def work():
        try:
            op(bad)
        except KernelError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 10


def kernel_of(schema, factor):
    if schema == 1:

        def redefined(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
            foreach(out, lambda i: x[i] * factor)
    else:

        def redefined(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], y: InputTensor[float32, "n"]):
            foreach(out, lambda i: x[i] * factor + y[i])

    return register("redefined")(redefined)


def test_redefinition():
    x = torch.ones(2)
    first = ek.op(kernel_of(1, 2.0))
    compiled = torch.compile(lambda x: first(x), fullgraph=True, backend="aot_eager")
    assert (first(x) + compiled(x)).tolist() == [4.0] * 2
    second = ek.op(kernel_of(1, 3.0))
    assert second.torch is torch.ops.einkorn.redefined.default and first.torch is not second.torch
    assert (first(x).tolist(), second(x).tolist()) == ([2.0] * 2, [3.0] * 2)
    assert torch.ops.einkorn.redefined(x).tolist() == [3.0] * 2
    other = ek.op(kernel_of(2, 5.0))  # with another signature, while a compiled graph holds the old one
    assert other.torch is not second.torch and other(x, x).tolist() == [6.0] * 2
    assert compiled(x).tolist() in ([2.0] * 2, [3.0] * 2) and second(x).tolist() == [3.0] * 2


def test_libraries_are_given_their_outputs():
    library = ek.CustomOpLibrary(k.__file__)
    assert "scale_and_shift" in dir(library) and "scale_and_shift" in list(library)
    out = torch.empty(3, 4)
    library.add_one(out, ROWS)
    assert torch.equal(out, ROWS + 1)
    double = library.scale_and_shift[{"scale": 2.0}]
    double[{"shift": 1.0}](out, ROWS)
    assert torch.equal(out, ROWS * 2 + 1)
    double(out.T, ROWS.T)
    assert torch.equal(out, ROWS * 2)
    whole = torch.empty(3, 4, dtype=torch.int32)
    library.converted(whole, ROWS)  # whose dtype only the caller has
    assert torch.equal(whole, ROWS.int())
    compiled = torch.compile(lambda x: (library.add_one(out, x), out * 2)[1], fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(ROWS), (ROWS + 1) * 2)


def test_wrong_calls_of_libraries():
    library = ek.CustomOpLibrary(k.__file__)
    with pytest.raises(PackageError, match="no op 'add_on'") as caught:
        library.add_on  # noqa: B018
    assert caught.value.code == "EK0440" and "add_one" in caught.value.hint
    with pytest.raises(GraphError, match="no parameter 'factor'"):
        library.scale_and_shift[{"factor": 2.0}]
    with pytest.raises(DTypeError, match="parameters as a dict"):
        library.scale_and_shift["scale"]
    with pytest.raises(GraphError, match=r"takes 2 arguments \(out, x\), but got 1"):
        library.add_one(ROWS)
    with pytest.raises(GraphError, match=r"'\*s' are \[3, 4\] .* but \[4, 3\] in out_types of 'out'"):
        library.add_one(torch.empty(4, 3), ROWS)
    with pytest.raises(DTypeError, match="float64"):
        library.add_one(torch.empty(3, 4, dtype=torch.float64), ROWS)
    x = torch.ones(6)
    with pytest.raises(GraphError, match="shares memory"):
        library.add_one(x[:4], x[2:])
    assert x.tolist() == [1.0] * 6


def test_ops_by_name():
    op = ek.op("add", extensions=[k.__file__])
    assert op(ROWS[0], ROWS[1]).tolist() == [4.0, 6.0, 8.0, 10.0]
    again = ek.op("add", extensions=k.__file__)
    assert again.torch is op.torch
    with pytest.raises(PackageError, match="no op 'nothing'"):
        ek.op("nothing", extensions=[k.__file__])
    with pytest.raises(DTypeError, match="takes a kernel"):
        ek.op(len)


def test_calls_keep_no_memory():
    op = ek.op(k.add_one)
    x = torch.ones(256, 1024)
    op(x)
    gc.collect()
    alive = sum(type(o) is torch.Tensor for o in gc.get_objects())
    gc.disable()
    for _ in range(50):
        op(x)
    gc.enable()
    assert sum(type(o) is torch.Tensor for o in gc.get_objects()) <= alive


FACTOR = 2.0


@register("times_factor")
def times_factor(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] * FACTOR)


def test_direct_calls(monkeypatch):
    x, out = torch.ones(3), torch.empty(3)
    for _ in range(3):
        assert k.add_one(x).tolist() == [2.0] * 3
    assert k.add_one(x, out=out) is out and out.tolist() == [2.0] * 3
    assert k.scale_and_shift(x, scale=3.0).tolist() == k.axpy(2, x, x).tolist() == [3.0] * 3
    assert k.total_of([x, x]).tolist() == [2.0] * 3 and len(k.spread(x, count=2)) == 2
    assert k.follow(x, torch.zeros(3), 0.5) is None and x.tolist() == [0.5] * 3
    for factor in (2.0, 5.0, 2.0):  # what a kernel reads of its module is seen by the next call
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(3):
            assert times_factor(torch.ones(2)).tolist() == [factor] * 2
    with pytest.raises(GraphError, match="requires a gradient"):
        k.add_one(torch.ones(3, requires_grad=True))


def test_arrays_next_to_tensors_and_given_outputs():
    out = torch.empty(4)
    op = ek.op(k.add)
    assert op.call([ROWS[0], np.ones(4, np.float32)], {}).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert op.call([ROWS[0], ROWS[1]], {}, out) is out and torch.equal(out, ROWS[0] + ROWS[1])
    with pytest.raises(GraphError, match=r"has 1 output, and out= gives 2"):
        op.call([ROWS[0], ROWS[1]], {}, (out, out))
    with pytest.raises(DeviceError, match="'x' lies on cpu, and 'y' on meta"):
        op._fallback.run(op._fallback.function_arguments([ROWS[0], ROWS[1].to("meta")], {}))
