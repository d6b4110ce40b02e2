"""Products of any rank cost what flat ones cost: what is around them moves into them, and divides no index."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.ir.program import Region, walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import host
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.load import load_graph
from einkorn.graph.ops.stage import builtin

pytestmark = pytest.mark.as_shipped

F = np.float32
HEADS, SIZE = 3, 4


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Nothing comes from an earlier run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINKORN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def load(forward: Callable[..., Any], *shapes: Sequence[int | str], fuse: bool = True) -> Model:
    types = [TensorType(DType.float32, shape, DeviceRef.CPU()) for shape in shapes]
    graph = Graph("test", forward=forward, input_types=types)
    return Model(graph.ir, partial(load_graph, fuse=fuse))


def groups(model: Model) -> list[str]:
    """For each group its root, and after a dash what is done in its stores."""
    entry = model.code.plan.entry
    assert entry is not None
    names = [[node.kernel.schema.name for node in group.nodes] for group in entry.groups]
    ends = [None if g.epilogue is None else n[g.epilogue] for g, n in zip(entry.groups, names, strict=True)]
    roots = [n[g.root] for g, n in zip(entry.groups, names, strict=True)]
    return [root if end is None else f"{root} - {end}" for root, end in zip(roots, ends, strict=True)]


def divisions_of_innermost_loops(model: Model) -> int:
    """How often an index is divided, by a size that only a call has, in loops that hold no other loop."""
    entry = model.code.plan.entry
    assert entry is not None
    program = typed_program(entry, host())

    def innermost(region: Region) -> bool:
        return not any(op.opcode.name in ("for", "parallel") for op in walk(region))

    loops = [r for f in program.functions for op in walk(f.body) if op.opcode.name == "for" for r in op.regions]
    inner = [op for region in loops if innermost(region) for op in walk(region)]
    return sum(op.opcode.name in ("udiv", "urem") and op.operands[1].const is None for op in inner)


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Small whole numbers: sums and products of a few of them are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(F)


def heads(x: Any, transpose: bool = False) -> Any:
    split = ops.reshape(x, [*x.shape[:-1], HEADS, SIZE])
    return ops.permute(split, [0, 2, 3, 1] if transpose else [0, 2, 1, 3])


def joined(x: Any) -> Any:
    batch, _, length, _ = x.shape
    return ops.reshape(ops.permute(x, [0, 2, 1, 3]), [batch, length, HEADS * SIZE])


def test_a_product_with_leading_axes_is_one_kernel() -> None:
    model = load(lambda x, w: ops.relu(x @ w), ["a", "b", "m", 6], [6, 10])
    assert groups(model) == ["matmul - relu"]
    for sizes in [(2, 3, 5), (1, 1, 1), (0, 2, 3), (3, 0, 1), (2, 2, 40)]:
        x, w = numbers(*sizes, 6), numbers(6, 10, seed=1)
        np.testing.assert_array_equal(model(x, w)[0].to_numpy(), np.maximum(x @ w, 0))


def test_heads_are_stored_where_they_are_read() -> None:
    """What makes heads of a product's rows is done as the product is stored, and undone likewise."""

    def forward(x: Any, q: Any, k: Any, v: Any, w: Any) -> Any:
        query, key, value = heads(x @ q + 1.0), heads(x @ k, transpose=True), heads(x @ v * 2.0)
        return joined(ops.softmax(query @ key * 0.25) @ value) @ w

    model = load(forward, ["batch", "length", 8], [8, 12], [8, 12], [8, 12], [12, 5])
    made = groups(model)
    assert made[0] == made[2] == "matmul - permute"
    assert made[-3:] == ["softmax", "batch_matmul - reshape", "matmul"]
    unfused = load(forward, ["batch", "length", 8], [8, 12], [8, 12], [8, 12], [12, 5], fuse=False)
    for batch, length in [(2, 5), (1, 1), (3, 17), (0, 4), (2, 0)]:
        inputs = [numbers(batch, length, 8) / 8, *(numbers(8, 12, seed=s) / 4 for s in (1, 2, 3)), numbers(12, 5)]
        np.testing.assert_array_equal(model(*inputs)[0].to_numpy(), unfused(*inputs)[0].to_numpy())


def test_no_index_is_divided_for_each_element() -> None:
    def forward(x: Any, q: Any, w: Any, b: Any) -> Any:
        y = joined(ops.softmax(heads(x @ q + b)))
        z = ops.gelu(y @ w + b)
        return ops.reshape(z, [-1, 12]), ops.softmax(ops.reshape(z, [*z.shape[:2], HEADS, SIZE]))

    model = load(forward, ["batch", "length", 12], [12, 12], [12, 12], [12])
    assert divisions_of_innermost_loops(model) == 0


def test_a_transposed_factor_is_read_as_it_lies() -> None:
    """Whatever the transpose is made of, and whatever else reads it."""

    def forward(x: Any, w: Any, y: Any) -> Any:
        turned = ops.transpose(w * 2.0, 0, 1)
        pairs = ops.permute(y, [1, 0, 3, 2]) + 0.0
        return x @ turned, turned + 1.0, y @ ops.permute(y, [0, 1, 3, 2]), y @ ops.permute(pairs, [1, 0, 2, 3])

    model = load(forward, ["m", 6], [20, 6], [2, "b", 9, 9])
    assert [name for name in groups(model) if "matmul" in name] == [
        "matmul_transposed", "batch_matmul_transposed", "batch_matmul",
    ]  # fmt: skip
    for m, b in [(5, 1), (1, 3), (30, 2), (0, 0)]:
        x, w, y = numbers(m, 6), numbers(20, 6, seed=1), numbers(2, b, 9, 9, seed=2)
        product, turned, square, same = (r.to_numpy() for r in model(x, w, y))
        np.testing.assert_array_equal(product, x @ (w * 2).T)
        np.testing.assert_array_equal(turned, (w * 2).T + 1)
        np.testing.assert_array_equal(square, y @ y.swapaxes(2, 3))
        np.testing.assert_array_equal(same, y @ y.swapaxes(2, 3))


def test_a_dear_producer_is_done_by_its_own_product() -> None:
    model = load(lambda x, a, b: ops.gelu(x @ a + 1.0) @ b, ["n", "m", 6], [6, 20], [20, 4])
    assert groups(model) == ["matmul - gelu", "matmul"]


def test_a_reshape_that_is_an_output_is_no_copy() -> None:
    def forward(x: Any, w: Any) -> Any:
        y = x @ w
        return ops.reshape(y, [-1]), ops.relu(y), ops.reshape(ops.sum(x, -1), [-1])

    model = load(forward, ["m", "n", 6], [6, 8])
    assert groups(model) == ["matmul", "relu", "reduce_sum"]
    assert model.code.plan.copies == ()
    for m, n in [(3, 5), (0, 2), (1, 1)]:
        x, w = numbers(m, n, 6), numbers(6, 8, seed=1)
        flat, positive, total = (b.to_numpy() for b in model(x, w))
        np.testing.assert_array_equal(flat, (x @ w).reshape(-1))
        np.testing.assert_array_equal(positive, np.maximum(x @ w, 0))
        np.testing.assert_array_equal(total, x.sum(-1).reshape(-1))


def test_a_value_that_is_given_back_under_two_shapes() -> None:
    def forward(x: Any, w: Any) -> Any:
        y = x @ w
        return ops.reshape(y, [-1]), y, ops.reshape(y, [8, -1]), ops.reshape(x, [-1])

    model = load(forward, ["m", 6], [6, 8])
    x, w = numbers(5, 6), numbers(6, 8, seed=1)
    flat, y, turned, given = (b.to_numpy() for b in model(x, w))
    np.testing.assert_array_equal(y, x @ w)
    np.testing.assert_array_equal(flat, (x @ w).reshape(-1))
    np.testing.assert_array_equal(turned, (x @ w).reshape(8, -1))
    np.testing.assert_array_equal(given, x.reshape(-1))


def test_an_epilogue_goes_on_behind_moves() -> None:
    """What is added after a reshape and a permute reads its other operand where the element goes."""

    def forward(x: Any, w: Any, b: Any) -> Any:
        y = ops.reshape(ops.relu(x @ w), [-1, 2, 4])
        return ops.permute(y, [2, 0, 1]) * 2.0 + b

    model = load(forward, ["m", 6], [6, 8], [4, "m", 2])
    assert groups(model) == ["matmul - add"]
    for m in (1, 3, 30, 0):
        x, w, b = numbers(m, 6), numbers(6, 8, seed=1), numbers(4, m, 2, seed=2)
        wanted = np.maximum(x @ w, 0).reshape(-1, 2, 4).transpose(2, 0, 1) * 2 + b
        np.testing.assert_array_equal(model(x, w, b)[0].to_numpy(), wanted)


def test_nothing_reads_on_both_sides_of_a_move() -> None:
    """The sum is read as it is and transposed, and a square one could be taken for the same shape."""

    def forward(x: Any, w: Any) -> Any:
        y = x @ w
        return ops.transpose(y, 0, 1) + y, ops.reshape(y, [4, 2, 2]) + ops.reshape(ops.transpose(y, 0, 1), [4, 2, 2])

    x, w = numbers(4, 6), numbers(6, 4, seed=1)
    both, cubes = (b.to_numpy() for b in load(forward, [4, 6], [6, 4])(x, w))
    np.testing.assert_array_equal(both, (x @ w).T + x @ w)
    np.testing.assert_array_equal(cubes, (x @ w + (x @ w).T).reshape(4, 2, 2))


def test_reshapes_of_what_is_computed_where_it_is_read() -> None:
    """All ways in which axes match: equal, split, joined, of size 1, and by sizes that only a call has."""

    def forward(x: Any) -> Any:
        y = x + ops.broadcast_to(ops.constant(np.arange(6, dtype=F), DType.float32, DeviceRef.CPU()), x.shape)
        b, n = x.shape[0], x.shape[1]
        shapes = [[b, n, 2, 3], [b * n, 6], [n, b, 6], [b, 1, n * 6], [b, n * 2, 3], [-1], [6, n, b], [1, b, n, 6, 1]]
        return [ops.reshape(y, shape) * 2.0 for shape in shapes]

    model = load(forward, ["b", "n", 6])
    for b, n in [(2, 5), (1, 1), (3, 2), (0, 3), (4, 0)]:
        x = numbers(b, n, 6)
        for result in model(x):
            np.testing.assert_array_equal(
                result.to_numpy(), ((x + np.arange(6, dtype=F)) * 2).reshape(result.to_numpy().shape)
            )


def test_the_kernels_compile_for_a_gpu_with_moves() -> None:
    from einkorn.compiler.pipeline import compile_entry
    from einkorn.compiler.targets import lookup

    model = load(lambda x, q: heads(x @ q + 1.0), ["batch", "length", 8], [8, 12])
    entry = model.code.plan.entry
    assert entry is not None and groups(model) == ["matmul - permute"]
    for name in ("sm_80", "gfx942"):
        assert compile_entry(entry, lookup(name)).code


@pytest.mark.parametrize(
    ("dtype", "transposed", "n", "k"),
    [
        (DType.bfloat16, True, 263, 257),
        (DType.bfloat16, False, 301, 600),
        (DType.float32, True, 1030, 65),
        (DType.float16, False, 257, 260),
    ],
    ids=str,
)
def test_products_are_near_exact_ones(dtype: DType, transposed: bool, n: int, k: int) -> None:
    """Odd sizes, packed or not, with any number of rows, against float64."""
    rng, kind = np.random.default_rng(n), dtype.to_numpy()
    b = rng.standard_normal((n, k) if transposed else (k, n)).astype(kind)
    right = (b.T if transposed else b).astype(np.float64)
    last = {DType.float32: 2.0**-24, DType.float16: 2.0**-11, DType.bfloat16: 2.0**-8}[dtype]
    shapes: list[Any] = [["m", k], b.shape]
    types = [TensorType(dtype, shape, DeviceRef.CPU()) for shape in shapes]

    def product(x: Any, matrix: Any) -> Any:
        return ops.matmul(x, ops.transpose(matrix, 0, 1) if transposed else matrix)

    def of_weight(x: Any) -> Any:
        return product(x, ops.constant_external("w", types[1]))

    session = InferenceSession(devices=[CPU()])
    packed = session.load(Graph("packed", forward=of_weight, input_types=types[:1]), weights_registry={"w": b})
    plain = session.load(Graph("plain", forward=product, input_types=types))
    for rows in (1, 2, 3, 5, 8, 17, 30):
        a = rng.standard_normal((rows, k)).astype(kind)
        exact, size = a.astype(np.float64) @ right, np.abs(a.astype(np.float64)) @ np.abs(right)
        got = packed(a)[0].to_numpy()
        assert np.array_equal(got, plain(a, b)[0].to_numpy()), rows
        assert (np.abs(got.astype(np.float64) - exact) <= np.abs(exact) * last + size * k * 2.0**-24).all(), rows


def test_parts_of_weights_are_packed() -> None:
    """A slice of a weight, as layers of recurrent networks have it, is packed as a whole one is."""
    rng = np.random.default_rng(0)
    weight, x = rng.standard_normal((2, 300, 256)).astype(F), rng.standard_normal((5, 256)).astype(F)

    def forward(rows: Any) -> Any:
        both = ops.constant_external("w", TensorType(DType.float32, weight.shape, DeviceRef.CPU()))
        return ops.matmul(rows, ops.transpose(both[1], 0, 1)), ops.matmul(rows, ops.transpose(both[0], 0, 1))

    graph = Graph("parts", forward=forward, input_types=[TensorType(DType.float32, x.shape, DeviceRef.CPU())])
    model = InferenceSession(devices=[CPU()]).load(graph, weights_registry={"w": weight})
    assert [each.prepared for each in model.passes if each.name == "pack_weights"] == [2]
    for result, part in zip(model(x), weight[::-1], strict=True):
        assert np.allclose(result.to_numpy(), x.astype(np.float64) @ part.astype(np.float64).T, atol=1e-4)


@pytest.mark.parametrize("types", list(itertools.product(("int8", "uint8"), repeat=2)), ids=str)
@pytest.mark.parametrize("sizes", [(1, 512, 256), (5, 300, 333), (40, 1030, 100)], ids=str)
def test_products_of_bytes_are_exact(types: tuple[str, str], sizes: tuple[int, int, int]) -> None:
    """Also of no rows. The lowest and highest numbers are among them, and a zero point for each column."""
    rows, depth, columns = sizes
    kinds = [DType[name] for name in types]
    rng = np.random.default_rng(sizes)
    a, b = (
        rng.integers(*kind.range, shape, endpoint=True).astype(name)
        for kind, name, shape in zip(kinds, types, ((rows, depth), (depth, columns)), strict=True)
    )
    a[:, : depth // 2], b[: depth // 2] = kinds[0].range[1], kinds[1].range[0]
    zeros = np.int32(kinds[0].range[0]), rng.integers(*kinds[1].range, columns).astype(np.int32)

    def forward(x: Any, y: Any, a_zero: Any, b_zero: Any) -> Any:
        w = ops.constant_external("w", TensorType(kinds[1], b.shape, DeviceRef.CPU()))
        return [builtin("byte_products", "matmul_8_bits", [x, m, a_zero, b_zero])[0] for m in (w, y)]

    shapes: list[list[int | str]] = [["m", depth], list(b.shape), [], [columns]]
    dtypes = (*kinds, DType.int32, DType.int32)
    given = [TensorType(dtype, shape, DeviceRef.CPU()) for dtype, shape in zip(dtypes, shapes, strict=True)]
    graph = Graph("bytes", forward=forward, input_types=given)
    model = InferenceSession(devices=[CPU()]).load(graph, weights_registry={"w": b})
    assert sum(each.prepared for each in model.passes) == (2 if b.size >= 1 << 16 else 0)
    exact = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
    for some in (rows, 0):
        for result in model(a[:some], b, *zeros):
            assert np.array_equal(result.to_numpy(), exact[:some])
