"""Layouts are what their definitions say, element by element, in Python and in kernels; and how they look."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.build import build_package
from einkorn.dsl import kernels_of
from einkorn.dsl.diagnostics.errors import CompileError, EinkornError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.stdlib import (
    ComposedLayout,
    Layout,
    Swizzle,
    blocked_product,
    coalesce,
    complement,
    composition,
    left_inverse,
    logical_divide,
    logical_product,
    raked_product,
    right_inverse,
    tiled_divide,
    zipped_divide,
)


def offsets(layout: Any, size: int | None = None) -> list[int]:
    return [layout(i) for i in range(layout.size if size is None else size)]


def coordinates(shape: Any) -> list[Any]:
    """All coordinates of a shape, the first part fastest."""
    if not isinstance(shape, tuple):
        return list(range(shape))
    parts = [coordinates(part) for part in reversed(shape)]
    return [tuple(reversed(each)) for each in itertools.product(*parts)]


def dotted(coordinate: Any, stride: Any) -> int:
    if isinstance(stride, tuple):
        return sum(map(dotted, coordinate, stride))
    return int(coordinate * stride)


def drawn(seed: int, most: int = 96) -> Layout:
    """A random layout: nested shapes, strides that divide each other or not, zeros among them."""
    rng = random.Random(seed)

    def shape(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.4:
            return rng.choice((1, 2, 2, 3, 4, 4, 6, 8))
        return tuple(shape(depth - 1) for _ in range(rng.randint(1, 3)))

    def stride(part: Any) -> Any:
        return tuple(map(stride, part)) if isinstance(part, tuple) else rng.choice((0, 1, 1, 2, 3, 4, 6, 8, 12, 24))

    while True:
        actual = shape(rng.randint(0, 3))
        kind = rng.randrange(3)
        made = Layout.row_major(actual) if kind == 0 else Layout.column_major(actual)
        made = made if kind < 2 else Layout(actual, stride(actual))
        if 0 < made.size <= most:
            return made


def tried(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or None where there is no such layout, which has to be said."""
    try:
        return function(*arguments)
    except EinkornError as error:
        assert error.code == "EK0215"
        return None


@pytest.mark.parametrize("seed", range(0, 200, 50))
def test_a_layout_is_the_sum_of_parts_times_strides(seed: int) -> None:
    for k in range(seed, seed + 50):
        layout = drawn(k)
        where = coordinates(layout.shape)
        assert layout.size == len(where)
        expected = [dotted(c, layout.stride) for c in where]
        assert offsets(layout) == expected == [layout(c) for c in where]
        assert layout.cosize == max(expected) + 1
        if isinstance(layout.shape, tuple) and 1 < layout.rank <= 4:
            assert [layout(*c) for c in where] == expected
            modes = [layout.mode(i) for i in range(layout.rank)]
            assert [sum(mode(part) for mode, part in zip(modes, c, strict=True)) for c in where] == expected
        assert offsets(Layout.column_major(layout.shape)) == list(range(layout.size))
        rows = Layout.row_major(layout.shape)
        assert sorted(offsets(rows)) == list(range(rows.size))


def test_ranks_and_depths() -> None:
    nested = Layout((2, (3, (4, 5))), (60, (20, (5, 1))))
    assert (nested.rank, nested.depth, nested.size, nested.cosize) == (2, 3, 120, 120)
    assert (Layout(8, 2).rank, Layout(8, 2).depth, Layout(8, 2).cosize) == (1, 0, 15)
    assert Layout((0, 4), (4, 1)).cosize == 0 and Layout((), ()).size == 1 and Layout.row_major((2, 3)).stride == (3, 1)
    assert Layout.row_major((2, 3)) == Layout((2, 3), (3, 1)) != Layout.column_major((2, 3))
    matrix = np.arange(120).reshape(2, 3, 4, 5)
    assert np.array_equal(
        [[nested(i, (j, (k, 2))) for j in range(3)] for i in range(2) for k in (1,)], matrix[:, :, 1, 2]
    )


def test_coalesce_is_the_same_function_with_fewer_modes() -> None:
    for k in range(200):
        layout = drawn(k)
        flat = coalesce(layout)
        assert offsets(flat) == offsets(layout) and flat.depth <= 1
        assert len(re.findall(r"\d+", str(flat.shape))) <= len(re.findall(r"\d+", str(layout.shape)))
        if isinstance(layout.shape, tuple):
            by = coalesce(layout, (1,) * layout.rank)
            assert by.rank == layout.rank
            assert [offsets(by.mode(i)) for i in range(by.rank)] == [
                offsets(layout.mode(i)) for i in range(layout.rank)
            ]
    assert coalesce(Layout((2, (1, 6)), (1, (6, 2)))) == Layout(12, 1)
    assert coalesce(Layout((2, (1, 6)), (1, (6, 2))), (1, 1)) == Layout((2, 6), (1, 2))


def test_composition_is_one_after_the_other() -> None:
    actual = 0
    for k in range(600):
        a, b = drawn(k), drawn(10_000 + k, 24)
        both = tried(composition, a, b)
        if both is None:
            continue
        actual += 1
        assert both.size == b.size
        inside = [i for i in range(b.size) if b(i) < a.size]
        assert [both(i) for i in inside] == [a(b(i)) for i in inside]
        whole = coalesce(a)
        assert offsets(both) == [whole(b(i)) for i in range(b.size)]  # beyond, along the last mode
        assert [both(c) for c in coordinates(b.shape)] == [whole(b(c)) for c in coordinates(b.shape)]
    assert actual > 250
    by_mode = composition(Layout.row_major((8, 6)), (Layout(4, 2), Layout(3, 1)))
    assert np.array_equal([[by_mode(i, j) for j in range(3)] for i in range(4)], np.arange(48).reshape(8, 6)[::2, :3])


def test_a_complement_fills_what_is_free() -> None:
    actual = 0
    for k in range(400):
        layout, size = drawn(k, 24), (k % 7 + 1) * 12
        rest = tried(complement, layout, size)
        if rest is None:
            continue
        actual += 1
        used, free = sorted(set(offsets(layout))), offsets(rest)
        assert free == sorted(free)
        sums = [a + b for a in used for b in free]
        assert len(sums) == len(set(sums)) and set(range(size)) <= set(sums)
    assert actual > 150
    assert complement(Layout(4, 1), 24) == Layout(6, 4) and complement(Layout(4, 6), 24) == Layout(6, 1)
    assert complement(Layout((2, 2), (1, 6)), 24) == Layout((3, 2), (2, 12))


def test_divisions_go_through_tiles() -> None:
    actual = 0
    for k in range(300):
        layout, tile = coalesce(drawn(k)), drawn(20_000 + k, 8)
        divided = tried(logical_divide, layout, tile)
        if divided is None:
            continue
        actual += 1
        rest = complement(tile, layout.size)
        assert divided.rank == 2 and divided.size == tile.size * rest.size
        assert offsets(divided.mode(0)) == [layout(tile(i)) for i in range(tile.size)]
        if divided.size == layout.size:
            assert sorted(offsets(divided)) == sorted(offsets(layout))
    assert actual > 80
    assert offsets(logical_divide(Layout(10, 1), 4)) == list(range(12))  # the last tile is ragged


@pytest.mark.parametrize("rows, columns, m, n", [(8, 8, 2, 4), (12, 6, 4, 3), (4, 4, 4, 1), (6, 10, 1, 5)])
def test_tiles_of_a_matrix(rows: int, columns: int, m: int, n: int) -> None:
    for layout in (Layout.row_major((rows, columns)), Layout.column_major((rows, columns))):
        matrix = np.array([[layout(i, j) for j in range(columns)] for i in range(rows)])
        zipped, tiled = zipped_divide(layout, (m, n)), tiled_divide(layout, (m, n))
        split = logical_divide(layout, (m, n))
        assert (zipped.rank, tiled.rank) == (2, 3)
        for p, q in itertools.product(range(rows // m), range(columns // n)):
            tile = matrix[p * m : p * m + m, q * n : q * n + n]
            for i, j in itertools.product(range(m), range(n)):
                assert zipped((i, j), (p, q)) == tiled((i, j), p, q) == split((i, p), (j, q)) == tile[i, j]
    three = zipped_divide(Layout.row_major((4, 6, 2)), (2, 3))  # the third mode stays
    assert three((1, 2), (1, 0, 1)) == np.arange(48).reshape(4, 6, 2)[3, 2, 1]


def test_products_repeat_a_layout() -> None:
    actual = 0
    for k in range(300):
        layout, copies = drawn(k, 16), drawn(30_000 + k, 8)
        repeated = tried(logical_product, layout, copies)
        if repeated is None:
            continue
        actual += 1
        assert offsets(repeated.mode(0)) == offsets(layout) and repeated.mode(1).size == copies.size
        own = set(offsets(layout))
        moved = [{offset + start for offset in own} for start in sorted(set(offsets(repeated.mode(1))))]
        assert sum(map(len, moved)) == len(set().union(*moved))  # copies share no offset
    assert actual > 80
    block, tiles = Layout.row_major((2, 2)), Layout.row_major((2, 3))
    blocked, raked = blocked_product(block, tiles), raked_product(block, tiles)
    assert np.array_equal(
        [[blocked(i, j) for j in range(6)] for i in range(4)],
        np.block([[4 * tiles(p, q) + np.array([[0, 1], [2, 3]]) for q in range(3)] for p in range(2)]),
    )
    for (p, q), (i, j) in itertools.product(np.ndindex(2, 3), np.ndindex(2, 2)):
        assert blocked((i, p), (j, q)) == raked((p, i), (q, j)) == 4 * tiles(p, q) + block(i, j)
    assert blocked_product(Layout(2, 1), Layout.row_major((2, 2))).rank == 2


def test_inverses() -> None:
    actual = 0
    for k in range(400):
        layout = drawn(k)
        right = right_inverse(layout)
        assert all(layout(right(i)) == i for i in range(right.size))
        if sorted(offsets(layout)) == list(range(layout.size)):
            assert right.size == layout.size
        left = tried(left_inverse, layout)
        if left is not None:
            actual += 1
            assert [left(layout(i)) for i in range(layout.size)] == list(range(layout.size))
    assert actual > 100
    assert tried(left_inverse, Layout((4, 2), (1, 2))) is None and tried(left_inverse, Layout(4, 0)) is None


@pytest.mark.parametrize("bits, base, shift", [(0, 4, 3), (1, 0, 1), (2, 1, 3), (3, 0, 3), (2, 0, -2), (1, 2, -3)])
def test_swizzles_permute(bits: int, base: int, shift: int) -> None:
    swizzle = Swizzle(bits, base, shift)
    period = swizzle.size
    there = [swizzle(i) for i in range(period)]
    assert sorted(there) == list(range(period)) and [swizzle(i) for i in there] == list(range(period))
    low, high = base + max(0, -shift), base + max(0, shift)
    for i, offset in enumerate(there):
        assert offset == i ^ (((i >> high) & ((1 << bits) - 1)) << low)


def test_composed_layouts() -> None:
    swizzled = composition(Swizzle(2, 0, 2), Layout.row_major((4, 4)))
    assert isinstance(swizzled, ComposedLayout) and (swizzled.size, swizzled.cosize) == (16, 16)
    columns = [[swizzled(i, j) % 4 for i in range(4)] for j in range(4)]
    assert all(sorted(column) == [0, 1, 2, 3] for column in columns)  # no two rows of a column in one bank
    part = composition(swizzled, Layout(4, 4))
    assert offsets(part) == [swizzled(4 * i) for i in range(4)]
    moved = ComposedLayout(Layout((4, 4), (4, 1)), Layout(3, 1), 5)
    assert offsets(moved) == [Layout((4, 4), (4, 1))(5 + i) for i in range(3)]
    assert (moved.rank, moved.depth, moved.shape) == (1, 0, 3)


KERNELS = """
from einkorn.dsl import *
from einkorn.stdlib import *

TILED = zipped_divide(Layout.row_major((8, 6)), (4, 3))
BANKS = composition(Swizzle(2, 0, 2), Layout.row_major((4, 4)))


@register("layouts::constant")
def constant(out: OutputTensor[int64, "48"], x: InputTensor[int64, "48"], swizzled: OutputTensor[int64, "16"]):
    foreach(out, lambda i: x[TILED(i[0])])
    foreach(swizzled, lambda i: Int(BANKS(i[0] // 4, i[0] % 4)))


@register("layouts::made")
def made(out: OutputTensor[int64, "m n"], x: InputTensor[int64, "m n"], *, rows: int = 2, columns: int = 2):
    whole = Layout.row_major((8, 6))
    tiles = tiled_divide(whole, (rows, columns))
    static_assert(tiles.size == 48 and left_inverse(whole).rank == 2, f"{rows} x {columns}")
    here = Layout.row_major((x.dim(0), x.dim(1)))  # sizes of the call

    def one(i):
        row, column = i
        place = tiles((row % rows, column % columns), row // rows, column // columns)
        return x[row, column] + place * 100 - here(row, column) * 100

    foreach(out, one)


@register("layouts::wrong")
def wrong(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"], *, count: int = 5):
    line = composition(Layout((4, 3), (1, 10)), Layout(count, 1))
    foreach(out, lambda i: x[i] + line(i[0]))
"""


def test_kernels_use_layouts() -> None:
    kernels = kernels_of(KERNELS)
    numbers = np.arange(48)
    tiled = zipped_divide(Layout.row_major((8, 6)), (4, 3))
    swizzled = composition(Swizzle(2, 0, 2), Layout.row_major((4, 4)))
    gathered, banks = kernels["layouts::constant"](numbers * 7)
    assert gathered.tolist() == [7 * offset for offset in offsets(tiled)]
    assert banks.tolist() == [swizzled(i, j) for i in range(4) for j in range(4)]
    matrix = numbers.reshape(8, 6)
    assert np.array_equal(kernels["layouts::made"](matrix), matrix)
    assert np.array_equal(kernels["layouts::made"](matrix, rows=4, columns=3), matrix)
    with pytest.raises(CompileError, match=r"EK0215.*: 5 elements, 1 apart, do not fit a mode of 4"):
        kernels["layouts::wrong"](numbers)


def test_layouts_travel_in_packages_and_run_on_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS.split('@register("layouts::made")')[0])
    package = tmp_path / "layouts.pkg"
    build_package(str(tmp_path / "kernels.py"), str(package), ["host"], include_source=False)
    (tmp_path / "kernels.py").unlink()
    device = Accelerator("sim")
    gpu = DeviceRef.GPU()
    graph = Graph(
        "layouts",
        forward=lambda x: ops.custom("layouts::constant", device=gpu, values=[x]),
        input_types=[TensorType(DType.int64, [48], gpu)],
        custom_extensions=[package],
    )
    numbers = Buffer.from_numpy(np.arange(48) * 7).to(device)
    gathered, banks = InferenceSession(devices=[device]).load(graph)(numbers)
    tiled = zipped_divide(Layout.row_major((8, 6)), (4, 3))
    assert gathered.to_numpy().tolist() == [7 * offset for offset in offsets(tiled)]
    swizzled = composition(Swizzle(2, 0, 2), Layout.row_major((4, 4)))
    assert banks.to_numpy().tolist() == [swizzled(i, j) for i in range(4) for j in range(4)]


def test_mistakes_say_what_is_wrong() -> None:
    wrong: list[tuple[Callable[[], object], str, str]] = [
        (lambda: Layout((2, 3), (1,)), "EK0894", r"shape \(2, 3\) has 2 parts, stride \(1,\) has 1"),
        (lambda: Layout((2, (3, 4)), (1, 2)), "EK0894", r"shape \(3, 4\) and stride 2 are not of one form"),
        (lambda: Layout(2.5, 1), "EK0894", "a shape is a number or a tuple of them, not 2.5"),
        (lambda: Layout([2, 3], [3, 1]), "EK0894", r"not \[2, 3\]"),
        (lambda: Layout((2, -1), (1, 1)), "EK0894", "a size is not below zero"),
        (lambda: Swizzle(1, 2, 3).svg(), "EK0894", "no coordinates to draw"),
        (lambda: Layout((2, 3), (3, 1))((1, 2, 0)), "EK0215", "as many parts as the shape"),
        (lambda: composition(Layout((4, 3), (1, 10)), Layout(5, 1)), "EK0215", "5 elements, 1 apart"),
        (lambda: complement(Layout((2, 2), (1, 3)), 12), "EK0215", "a stride of 3 is not a multiple of 2"),
        (lambda: logical_divide(Layout(8, 1), (2, 2)), "EK0215", "no more tilers than modes"),
        (lambda: coalesce(Layout(8, 1), (1, 1)), "EK0215", "by has no more parts"),
        (lambda: left_inverse(Layout((2, 2), (1, 0))), "EK0215", "an offset twice"),
    ]
    for call, code, text in wrong:
        with pytest.raises(EinkornError, match=text) as caught:
            call()
        assert caught.value.code == code
        assert caught.value.place is not None and caught.value.place.file == __file__


def test_a_grid_of_text_a_card_and_a_picture() -> None:
    layout = Layout((2, (2, 2)), (2, (1, 4)))
    text = ["(2, (2, 2)):(2, (1, 4))", "   0  1  2  3", "0  0  1  4  5", "1  2  3  6  7"]
    assert str(layout).splitlines() == text and repr(layout) == "Layout(shape=(2, (2, 2)), stride=(2, (1, 4)))"
    assert layout.as_text().splitlines() == [
        "layout " + text[0],
        *text[1:],
        "size: 8",
        "cosize: 8",
        "rank: 2",
        "depth: 2",
    ]
    html = layout._repr_html_()
    assert re.findall(r"<td[^>]*>(\d+)</td>", html) == ["0", "0", "1", "4", "5", "1", "2", "3", "6", "7"]
    picture = layout.svg(colors=4)
    assert re.findall(r"fill='black'>(\d+)<", picture) == ["0", "1", "4", "5", "2", "3", "6", "7"]
    assert picture.count("<rect") == 8
    assert picture.count("hsl(0,") == 2
    assert str(Swizzle(2, 0, 2)) == "Swizzle(bits=2, base=0, shift=2)" and "size: 16" in Swizzle(2, 0, 2).as_text()
    swizzled = composition(Swizzle(1, 0, 1), Layout.row_major((2, 2)))
    assert str(swizzled).splitlines()[0] == "Swizzle(bits=1, base=0, shift=1) of ((2, 2):(2, 1))"
    assert str(swizzled).splitlines()[2:] == ["0  0  1", "1  3  2"]
    wide = Layout.row_major((40, 50)).as_text().splitlines()
    assert wide[1] == "32 of 40 rows, 32 of 50 columns"
    assert wide[34].split()[:2] == ["31", "1550"] and wide[2].split()[-1] == "31"
    assert str(Layout(5, 3)).splitlines()[-1] == "0  0  3  6  9  12" and str(Layout((0, 2), (2, 1))) == "(0, 2):(2, 1)"


def test_kernels_do_not_see_pictures() -> None:
    text = KERNELS.split('@register("layouts::constant")')[0] + (
        '@register("layouts::drawn")\n'
        'def drawn(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]):\n'
        "    foreach(out, lambda i: x[i] + TILED.svg())\n"
    )
    with pytest.raises(CompileError, match="svg"):
        kernels_of(text)["layouts::drawn"](np.arange(3))
