"""Ops of elementwise kernels keep the layout of PyTorch's tensors: real ones, fake ones, and in compiled programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import einkorn.torch as ek
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

from einkorn.dsl.diagnostics.errors import EinkornError

from . import elementwise_kernels as k


def images() -> torch.Tensor:
    return torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "channels last": images,
    "transposed": lambda: torch.arange(20.0).reshape(4, 5).T,
    "volumes": lambda: torch.arange(240.0).reshape(2, 2, 3, 4, 5).to(memory_format=torch.channels_last_3d),
    "permuted": lambda: torch.arange(60.0).reshape(3, 4, 5).permute(2, 0, 1),
    "a transposed view with steps": lambda: torch.arange(24.0).reshape(4, 6)[:, ::2].T,
    "row-major": lambda: torch.arange(20.0).reshape(4, 5),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_outputs_lie_as_those_of_pytorch(name: str) -> None:
    x = LAYOUTS[name]()
    op, plain = ek.op(k.plus), x.contiguous()
    for a, b in ((x, x), (x, plain), (plain, x)):
        wanted = a + b
        for _ in range(3):  # doors open after the first call
            for each in (op(a, b), k.plus(a, b)):
                assert torch.equal(each, wanted) and each.stride() == wanted.stride()
        out = torch.empty_like(wanted)
        assert k.plus(a, b, out=out) is out and torch.equal(out, wanted)
        with FakeTensorMode() as mode:
            fake = op(mode.from_tensor(a), mode.from_tensor(b))
        assert fake.stride() == wanted.stride() and fake.shape == wanted.shape
    low, high = ek.op(k.both)(x, x, plain)
    assert low.stride() == high.stride() == (x + x).stride() and torch.equal(high, x - plain)


@pytest.mark.parametrize("name", ["channels last", "transposed"])
def test_opcheck_of_layouts(name: str) -> None:
    x = LAYOUTS[name]()
    assert set(opcheck(ek.op(k.minus).torch, (x, x.contiguous())).values()) == {"SUCCESS"}


def test_compiled_programs_keep_layouts() -> None:
    op, x = ek.op(k.minus), images()
    compiled = torch.compile(lambda a, b: op(a, b) * 2, dynamic=True)
    for size in (2, 3):
        y = torch.rand(size, 3, 4, 5).to(memory_format=torch.channels_last)
        actual = compiled(y, y[:1].expand(size, 3, 4, 5))
        assert torch.equal(actual, (y - y[:1]) * 2) and actual.is_contiguous(memory_format=torch.channels_last)
    assert compiled(x, x).stride() == x.stride()


def test_kernels_that_compute_with_the_index_give_row_major_outputs() -> None:
    x = torch.arange(12.0).reshape(3, 4).T
    actual = ek.op(k.row_sums)(x, x)
    assert actual.is_contiguous() and torch.equal(actual, x + x * torch.arange(4.0)[:, None])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.permutations(range(3)), st.permutations(range(3)), st.booleans())
def test_random_orders(first: list[int], second: list[int], stepped: bool) -> None:
    def lying(order: list[int]) -> torch.Tensor:
        sizes = [(2, 3, 4)[axis] * (1 + stepped) for axis in order]
        made = torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)
        return made.permute([order.index(axis) for axis in range(3)])[:: 1 + stepped, :: 1 + stepped, :: 1 + stepped]

    a, b = lying(first), lying(second)
    actual, wanted = ek.op(k.minus)(a, b), a - b
    assert torch.equal(actual, wanted) and actual.stride() == wanted.stride()


ROWS = torch.arange(12.0).reshape(3, 4)


def test_direct_calls_broadcast() -> None:
    row, column = ROWS[0], ROWS[:, :1]
    for a, b in ((ROWS, row), (row, ROWS), (column, row), (ROWS, 2.0), (2, ROWS), (ROWS, ROWS[:1]), (ROWS, column)):
        wanted = torch.sub(torch.as_tensor(a), torch.as_tensor(b))
        for _ in range(3):
            assert torch.equal(k.minus(a, b), wanted)
        torch.compiler.reset()  # one piece of code for all pairs would be compiled too often
        compiled = torch.compile(lambda x, y: k.minus(x, y) * 2, fullgraph=True)
        assert torch.equal(compiled(a, b), wanted * 2)
    assert torch.equal(k.minus(ROWS, row.numpy()), ROWS - row)
    out = torch.empty(3, 4)
    assert k.minus(ROWS, row, out=out) is out and torch.equal(out, ROWS - row)
    assert torch.equal(k.one_axis(row, 1.0), row + 1)
    assert k.minus(images(), torch.ones(3, 1, 1)).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: k.minus(ROWS, ROWS[0, :3]), "EK0311"),
        (lambda: k.minus(ROWS, ROWS[:2]), "EK0312"),
        (lambda: k.row_sums(ROWS, ROWS[0]), "EK0311"),
        (lambda: k.plus(ROWS.int(), 1.5), "EK0412"),
        (lambda: k.one_axis(ROWS, ROWS[0]), "EK0311"),
    ],
)
def test_direct_calls_that_do_not_broadcast(call: Callable[[], object], code: str) -> None:
    with pytest.raises(EinkornError) as caught:
        call()
    error = getattr(caught.value, "errors", [caught.value])[0]
    assert error.code == code and error.place is not None and error.place.file == __file__
