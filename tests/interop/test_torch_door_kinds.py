"""Which calls of ops of PyTorch take no step in Python: views, writing in place, lists, any dtypes and parameters."""

from __future__ import annotations

import threading
from typing import TypeVar

import pytest

torch = pytest.importorskip("torch")

import einkorn.torch as ek

from einkorn.dsl import (
    DType,
    Floating,
    InputTensor,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    VariadicTensors,
    float32,
    foreach,
    register,
    unroll,
)
from einkorn.dsl.diagnostics.errors import EinkornError, GraphError, KernelError
from einkorn.graph.interop.torch import libtorch
from einkorn.graph.interop.torch.op import _owners
from einkorn.graph.loading.background import BACKGROUND

from . import direct_kernels as k

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)


class PythonTookPart(Exception):
    pass


@register("sum_of_two")
def sum_of_two(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]):
    foreach(out, lambda i: x[i] + y[i])


@register("draws_near")
def draws_near(mean: MutableInputTensor[F, "*s"], x: InputTensor[F, "*s"], rate: float32):
    foreach(mean, lambda i: mean[i] + x[i] * rate.cast(mean.dtype))


@register("sum_of_all")
def sum_of_all(out: OutputTensor[F, "*s"], xs: VariadicTensors[F, "*s"]):
    def element(i):
        actual = xs[0][i]
        for n in unroll(1, len(xs)):
            actual = actual + xs[n][i]
        return actual

    foreach(out, element)


@register("times_factor")
def times_factor(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, factor: float = 1.0):
    foreach(out, lambda i: x[i] * factor)


@register("turned")
def turned(out: OutputTensor[DType.bool, "*s"], x: InputTensor[DType.bool, "*s"]):
    foreach(out, lambda i: not x[i])


def natively(op, *args, **parameters):
    """A call that takes no step in Python, after two that may."""
    for _ in range(2):
        op(*args, **parameters)
        BACKGROUND.wait()
    fallback = op._registered.fallback

    def run(call):
        raise PythonTookPart

    fallback.run = run
    try:
        return op(*args, **parameters)
    finally:
        del fallback.run


BASE = torch.arange(48.0).view(6, 8)
VIEWS = {
    "transposed": BASE.T,
    "every second row": BASE[::2],
    "every third column": BASE[:, ::3],
    "a column": BASE[:, 1],
    "expanded": torch.arange(4.0)[:, None].expand(4, 5),
    "one element expanded": torch.tensor(3.0).expand(2, 3),
    "channels last": torch.arange(120.0).view(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "elements that share memory": torch.arange(6.0).as_strided((2, 2, 3), (1, 2, 1)),
    "axes of size 1": torch.arange(8.0).as_strided((1, 8, 1), (3, 1, 7))[:, ::2],
    "no elements": torch.empty(3, 0).T,
    "without axes": torch.tensor(2.0),
    "five axes": torch.arange(32.0).view(2, 2, 2, 2, 2).permute(4, 2, 0, 1, 3),
    "bits that are pending": torch.imag(torch.arange(4.0).to(torch.complex64).conj()),
}


@pytest.mark.parametrize("what", VIEWS)
def test_views(what):
    op, x = ek.op(sum_of_two), VIEWS[what]
    for y in (x, torch.arange(float(x.numel())).view(x.shape)):
        actual = natively(op, x, y)
        assert torch.equal(actual, x + y)
        if what not in ("elements that share memory", "axes of size 1"):  # whose strides say nothing
            assert actual.stride() == (x + y).stride()


def test_matrices_that_are_transposed():
    op = ek.op(sum_of_two)
    assert torch.equal(natively(op, BASE.T, BASE.T.contiguous()), 2 * BASE.T)
    large = torch.rand(300, 200)  # by the pool
    assert torch.equal(natively(op, large.T, large.T), 2 * large.T)


def test_writing_in_place():
    op = ek.op(draws_near)
    memory = torch.zeros(8, 2)
    places = [torch.zeros(4), torch.zeros(4, 4).T, torch.zeros(8)[::2], torch.zeros(0), memory[:, 1], memory[2:4]]
    for place in places:
        x = torch.ones(place.shape)
        before, version = place.clone(), place._version
        natively(op, place, x, 0.5)
        assert torch.equal(place, before + 1.5) and place._version == version + 3
    natively(op, memory[:, 0], memory[:, 1], 0.5)  # their elements lie in turns
    natively(op, memory[:4], memory[4:], 0.5)
    natively(op, memory[:4], torch.ones(1).expand(4, 2), 0.5)


def test_writing_over_what_is_read():
    op, memory = ek.op(draws_near), torch.zeros(8)
    natively(op, torch.zeros(4), torch.ones(4), 0.5)
    overlapping = memory.as_strided((2, 3), (1, 1))
    pairs = [(memory, memory), (memory[:4], memory[2:6]), (memory[::2], memory[:4]), (overlapping, torch.ones(2, 3))]
    for mean, x in [*pairs, (torch.zeros(1).expand(4), torch.ones(4))]:
        for _ in range(3):
            with pytest.raises(GraphError, match="EK0462"):
                op(mean, x, 0.5)
    assert not memory.any()


def test_tensors_of_the_inference_mode_have_no_version():
    with torch.inference_mode():
        mean = torch.zeros(3)
        natively(ek.op(draws_near), mean, torch.ones(3), 0.5)
    assert mean.is_inference() and mean.tolist() == [1.5] * 3
    ek.op(draws_near)(mean, torch.ones(3), 0.5)


def test_numbers_that_are_passed():
    op = ek.op(draws_near)
    mean = torch.zeros(2, dtype=torch.float64)
    for rate in (0.25, True, 3, 1.75):
        natively(op, torch.zeros(2), torch.ones(2), rate)
        op(mean, torch.ones(2, dtype=torch.float64), rate)
    assert mean.tolist() == [6.0, 6.0]
    with pytest.raises(GraphError, match="EK0412"):
        op(mean, torch.ones(2, dtype=torch.float64), 1e300)
    op(mean, torch.ones(2, dtype=torch.float64), float("inf"))
    assert mean.isinf().all()


def test_lists():
    op = ek.op(sum_of_all)
    for count in (1, 2, 3, 17):
        tensors = [torch.full((2, 3), float(n)) if n % 2 else torch.full((3, 2), float(n)).T for n in range(count)]
        uses = [tensor._use_count() for tensor in tensors]
        assert torch.equal(natively(op, tensors), sum(tensors))
        assert uses == [tensor._use_count() for tensor in tensors]
    with pytest.raises(GraphError):
        op([torch.ones(2), torch.ones(3)])
    several = ek.op(k.spread)
    for count in range(1, 8):
        actual = natively(several, torch.ones(4), count=count)
        assert [each.tolist() for each in actual] == [[1.0 + n] * 4 for n in range(count)]


def test_dtypes_and_parameters_without_end():
    op = ek.op(sum_of_two)
    names = ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64")
    names += ("uint8", "uint16", "uint32", "uint64")
    for _ in range(2):
        for name in names:
            x = torch.arange(5).to(getattr(torch, name))
            actual = natively(op, x, x)
            assert actual.dtype == x.dtype and actual.tolist() == [0, 2, 4, 6, 8]
    scaled = ek.op(times_factor)
    for number in range(20):  # the index grows
        assert natively(scaled, torch.ones(3), factor=number / 4).tolist() == [number / 4] * 3
    assert natively(scaled, torch.ones(3), factor=-0.0).signbit().all()
    assert natively(ek.op(turned), torch.tensor([True, False])).tolist() == [False, True]


def test_outputs_that_are_given():
    op = ek.op(sum_of_two)
    for out in (torch.zeros(6, 8), torch.zeros(8, 6).T, torch.zeros(6, 16)[:, ::2]):
        for _ in range(2):
            sum_of_two(BASE, BASE, out=out)
            BACKGROUND.wait()
        into = next(each for each in _owners.values() if each.overload is op._into)
        out.zero_()
        version = out._version

        def run(call):
            raise PythonTookPart

        into.fallback.run = run
        try:
            sum_of_two(BASE, BASE, out=out)
        finally:
            del into.fallback.run
        assert torch.equal(out, 2 * BASE) and out._version == version + 1
    same = torch.ones(6, 8)
    with pytest.raises(GraphError, match="EK0462"):
        sum_of_two(same, same, out=same)
    with pytest.raises(GraphError):
        sum_of_two(BASE, BASE, out=torch.zeros(6, 7))


def test_an_op_with_a_backward():
    @register("with_slope")
    def with_slope(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]):
        foreach(out, lambda i: x[i] * 3)

    op = ek.op(with_slope)
    op.backward(lambda context, grad: grad * 3)
    x = torch.ones(3, requires_grad=True)
    natively(op, torch.ones(3))
    assert not natively(op, torch.ones(3)).requires_grad
    with torch.no_grad():
        natively(op, x)
    actual = op(x)
    actual.sum().backward()
    assert x.grad.tolist() == [3.0] * 3
    assert torch.func.grad(lambda t: op(t).sum())(torch.ones(3)).tolist() == [3.0] * 3
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(3), torch.full((3,), 2.0))
        assert torch.autograd.forward_ad.unpack_dual(op(dual)).tangent.tolist() == [6.0] * 3
    natively(op, torch.ones(3))


def test_tensors_that_are_not_plain_go_by_python():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    op = ek.op(sum_of_two)
    natively(op, torch.ones(3), torch.ones(3))
    with FakeTensorMode():
        assert type(op(torch.ones(3), torch.ones(3))).__name__ == "FakeTensor"
    assert op(torch.ones(3, device="meta"), torch.ones(3, device="meta")).device.type == "meta"
    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function.name())
            return function(*args, **(kwargs or {}))

    with Seeing():
        op(torch.ones(3), torch.ones(3))
    assert "einkorn::sum_of_two" in seen
    assert torch.vmap(op)(BASE, BASE).equal(2 * BASE)


def test_threads():
    op, collected = ek.op(sum_of_two), []

    def work(number):
        views = [torch.full((number + 2, 5), float(number)), torch.full((5, number + 2), float(number)).T]
        collected.append(all(torch.equal(op(x, y), x + y) for _ in range(50) for x in views for y in views))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collected == [True] * 4


def test_the_layout_of_tensors_is_found_in_any_mode():
    with torch.inference_mode(), torch.device("meta"):
        assert libtorch.Libtorch().words["plain_keys"] == libtorch.libtorch().words["plain_keys"]


@register("by_text")
def by_text(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, how: str = "kept", by: int = 1):
    """The number of characters, and which text it is, decide what is added."""
    if how == "kept":
        foreach(out, lambda i: x[i])
    else:
        foreach(out, lambda i: x[i] + len(how) * 100 + by)


@register("by_numbers")
def by_numbers(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, numbers: tuple[int, ...] = (3, -1)):
    def element(i):
        actual = x[i]
        for place in unroll(len(numbers)):
            actual = actual * 10 + numbers[place]
        return actual

    foreach(out, element)


TEXTS = ["", "a", "b", "1234567", "12345678", "123456789", "123456780", "\0", "\0\0", "größer", "x" * 300, "kept"]


def test_texts():
    op, x = ek.op(by_text), torch.arange(3.0)
    assert torch.equal(natively(op, x), x)
    for text in TEXTS:
        for by in (1, 2):
            wanted = x if text == "kept" else x + len(text) * 100 + by
            assert torch.equal(natively(op, x, how=text, by=by), wanted)
    assert torch.equal(natively(op, x, how="another"), x + 701)
    assert torch.equal(op(x, how="y" * 5000), x + 500001)  # longer than a key: by Python
    assert torch.equal(torch.vmap(lambda each: op(each, how="a"))(torch.ones(2, 3)), torch.full((2, 3), 102.0))


def test_tuples_of_numbers():
    op, x = ek.op(by_numbers), torch.arange(3.0)
    for numbers in ((3, -1), (), (1,), (1, 2, 3), (-(2**40),), [4, 5]):
        wanted = x
        for each in numbers:
            wanted = wanted * 10 + each
        assert torch.equal(natively(op, x, numbers=numbers), wanted)
    assert torch.equal(natively(op, x), x * 100 + 29)


# *** sizes that a shape function computes ***


@register("places_of")
def places_of(out: OutputTensor[DType.int64, "found"], x: InputTensor[N, "n"], *, least: int = 1):
    at = 0
    for i in range(x.dim(0)):
        if x[i] >= least:
            out[at] = i
            at += 1


@places_of.shape
def places_of_sizes(x, *, least: int):
    assert x.dim(0) < 100, "there are too many"
    actual = 0
    for i in range(x.dim(0)):
        if x[i] >= least:
            actual += 1
    return actual


@register("every")
def every(out: OutputTensor[F, "m rows"], x: InputTensor[F, "rows n"], *, step: int = 2):
    foreach(out, lambda i: x[i[1], i[0] * step])


@every.shape
def every_sizes(x, *, step: int):
    return (x.dim(1) + step - 1) // step if step < 100 else -1


def test_sizes_of_shape_functions():
    op = ek.op(places_of)
    natively(op, torch.arange(5.0))
    for x in (torch.arange(12.0) - 6, torch.zeros(7), torch.zeros(0), torch.arange(64.0).flip(0)):
        assert torch.equal(natively(op, x), torch.nonzero(x >= 1)[:, 0])
        assert torch.equal(natively(op, x[::2], least=2), torch.nonzero(x[::2] >= 2)[:, 0])
    for step in (1, 2, 3, 9):
        assert torch.equal(natively(ek.op(every), BASE, step=step), BASE[:, ::step].T)
        assert torch.equal(natively(ek.op(every), BASE.T, step=step), BASE.T[:, ::step].T)
    with torch.no_grad():
        x = torch.arange(4.0, requires_grad=True)
        assert torch.equal(natively(op, x), torch.tensor([1, 2, 3]))


def test_shape_functions_that_fail():
    op, x = ek.op(places_of), torch.arange(100.0)
    natively(op, x[:50])
    for _ in range(4):
        with pytest.raises(KernelError, match="there are too many"):
            op(x)
        BACKGROUND.wait()
    for _ in range(4):
        with pytest.raises(GraphError, match="the shape function of op 'every' gives -1 for dim 'every_m'"):
            ek.op(every)(BASE, step=100)
        BACKGROUND.wait()
    assert torch.equal(natively(op, x[:50]), torch.arange(1, 50))


def test_given_outputs_of_a_shape_function():
    x = torch.arange(9.0) - 4
    for size in (4, 4, 4):
        out = torch.empty(size, dtype=torch.int64)
        assert places_of(x, out=out) is out
        assert torch.equal(out, torch.arange(5, 9))
        BACKGROUND.wait()
    for _ in range(2):
        with pytest.raises(GraphError):
            places_of(x, out=torch.empty(3, dtype=torch.int64))


# *** numbers that may be integers or floats ***


@register("held_within")
def held_within(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], low: N, high: N):
    foreach(out, lambda i: min(max(x[i], low), high))


@register("of_number")
def of_number(out: OutputTensor[N, "*s"], x: InputTensor[DType.bool, "*s"], number: N):
    foreach(out, lambda i: number if x[i] else number.dtype(0))


@held_within.backward
def held_within_backward(context, grad):
    x, low, high = context.inputs
    return grad * ((x >= low) & (x <= high)), None, None


@pytest.mark.parametrize(("low", "high"), [(2, 5), (1.5, 4), (2, 4.25), (1.25, 4.25), (2**24 + 1, 2**40)])
def test_numbers_of_several_kinds(low, high):
    op, x = ek.op(held_within), torch.arange(8.0)
    if low < 10:
        assert torch.equal(natively(op, x, low, high), torch.clamp(x, low, high))
        assert torch.equal(natively(op, x, low=low, high=high), torch.clamp(x, low, high))
    y = torch.arange(8.0, dtype=torch.float64) * 2**23
    assert torch.equal(natively(op, y, low, high), torch.clamp(y, low, high))
    y.requires_grad_()
    op(y, low, high).sum().backward()
    assert torch.equal(y.grad, ((y >= low) & (y <= high)).double())
    z = BASE.double()
    assert torch.equal(torch.func.vmap(lambda row: op(row, low, high))(z), torch.clamp(z, low, high))
    actual = torch.compile(lambda x: op(x, low, high), fullgraph=True, backend="aot_eager")(z)
    assert torch.equal(actual, torch.clamp(z, low, high))
    with torch.inference_mode():
        assert torch.equal(natively(op, z, low, high), torch.clamp(z, low, high))


def test_numbers_that_integers_take():
    op, x = ek.op(held_within), torch.arange(8)
    assert torch.equal(natively(op, x, 2, 5), torch.clamp(x, 2, 5))
    assert torch.equal(natively(op, x, -(2**62), 2**62), x)
    assert op(torch.arange(3).to(torch.uint64), 2**63, 2**64 - 1).tolist() == [2**63] * 3
    for wrong in ((x, 2.5, 5), (x, 2, 5.5), (x.to(torch.int8), 2, 300)):
        for _ in range(3):
            with pytest.raises(EinkornError):
                op(*wrong)
            BACKGROUND.wait()
    with pytest.raises(OverflowError):
        op(x, 2, 2**70)


@pytest.mark.parametrize(("number", "dtype"), [(3, torch.int64), (2.5, torch.float32), (2**40, torch.int64)])
def test_numbers_that_say_the_dtype(number, dtype):
    actual = natively(ek.op(of_number), torch.tensor([True, False]), number)
    assert actual.dtype == dtype and actual.tolist() == [number, 0]


def test_exported_programs_hold_the_op_with_scalars():
    class Held(torch.nn.Module):
        def forward(self, x):
            return ek.op(held_within)(x, 1, 2.5)

    natively(ek.op(held_within), BASE, 1, 2.5)
    for strict in (False, True):
        program = torch.export.export(Held(), (BASE,), strict=strict)
        calls = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        assert calls == ["einkorn.held_within.default"]
        assert torch.equal(program.module()(BASE), torch.clamp(BASE, 1, 2.5))
