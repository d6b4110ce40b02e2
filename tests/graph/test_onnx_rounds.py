"""Loops that collect results, and Slice, Pad and TopK with sizes that come with a call, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, parser  # noqa: E402
from support.onnx_runtime import HEADER, by_runtime, same  # noqa: E402

from einkorn.dsl.diagnostics.errors import GraphError  # noqa: E402
from einkorn.graph import InferenceSession, from_onnx  # noqa: E402

Arrays = list[np.ndarray[Any, Any]]


def rows(*sizes: int, width: int = 3) -> list[Arrays]:
    """A call for each number of rows."""
    random = np.random.default_rng(0)
    return [[random.standard_normal((size, width)).astype(np.float32)] for size in sizes]


LEAST, MOST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (-1, LEAST, -1),
        (MOST, LEAST, -2),
        (-1, -(1 << 31), -3),
        (9, LEAST, -1),
        (1, LEAST, -1),
        (-2, -4, -1),
        (MOST, 0, -1),
        (0, MOST, 1),
        (0, MOST, 2),
        (1, (1 << 31) - 1, 3),
        (LEAST, MOST, 1),
    ],
)
def test_slices_to_the_ends_of_integers(start: int, end: int, step: int) -> None:
    text = f"""
    g (float[n, 3] x) => (float[m, 3] y) <int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] zero = {{0}},
        int64[1] s = {{{step}}}> {{ y = Slice(x, a, b, zero, s) }}"""
    same(text, rows(1, 4, 7, 11))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_computed_from_sizes(mode: str) -> None:
    text = f"""
    g (float[n, 3] x) => (float[m, 3] y) <int64[1] none = {{0}}, int64[1] one = {{1}}, int64[1] nine = {{9}}> {{
        size = Shape<start = 0, end = 1>(x)
        more = Sub(nine, size)
        pads = Concat<axis = 0>(one, none, more, none)
        y = Pad<mode = "{mode}">(x, pads)
    }}"""
    same(text, rows(5, 7, 9))


def test_pads_that_crop_or_come_with_the_call() -> None:
    random = np.random.default_rng(0)
    text = "g (float[n, 3] x, int64[4] pads, float v) => (float[m, k] y) { y = Pad(x, pads, v) }"
    calls: list[Arrays] = [
        [random.standard_normal((size, 3)).astype(np.float32), np.array(pads, np.int64), np.array(2.5, np.float32)]
        for size, pads in ((4, [0, 1, 2, 0]), (5, [-2, 0, -1, 3]), (5, [-2, 0, 4, -1]), (2, [0, 0, 0, 0]))
    ]
    same(text, calls)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_a_size(largest: int) -> None:
    text = f"""
    g (float[n, 3] x) => (float[m, 3] y, int64[m, 3] at) <int64[1] two = {{2}}> {{
        size = Shape<start = 0, end = 1>(x)
        half = Div(size, two)
        y, at = TopK<axis = 0, largest = {largest}>(x, half)
    }}"""
    same(text, rows(1, 4, 7))
    calls = [[*arrays, np.array([2], np.int64)] for arrays in rows(2, 5)]
    same(
        "g (float[n, 3] x, int64[1] k) => (float[m, 3] y, int64[m, 3] at)"
        f" {{ y, at = TopK<axis = 0, largest = {largest}>(x, k) }}",
        calls,
    )


def test_scan_along_a_symbolic_axis() -> None:
    text = """
    g (float[3] first, float[n, 3] x, float[3, n] z) => (float[3] last, float[n, 3] sums, float[3, n] parts) {
        last, sums, parts = Scan<num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1],
            scan_output_axes = [0, 1], scan_output_directions = [1, 0],
            body = step (float[3] state, float[3] a, float[3] b) => (float[3] after, float[3] out, float[3] part)
            { after = Add(state, a) out = Identity(after) part = Mul(after, b) }>(first, x, z)
    }"""
    random = np.random.default_rng(0)
    sizes = ((3,), "n", (3, "n"))
    calls = [
        [random.standard_normal([n if d == "n" else d for d in shape]).astype(np.float32) for shape in sizes]
        for n in (1, 5, 300)
    ]
    calls = [[a, random.standard_normal((c.shape[1], 3)).astype(np.float32), c] for a, _, c in calls]
    same(text, calls, tolerance=1e-4)


LOOP = """
g (float[n, 3] x, int64 limit) => (float[3] last, float[m, 3] parts) <float[3] start = {{0, 0, 0}}, int64 one = {{1}},
    int64 zero = {{0}}, bool yes = {{1}}> {{
    size = Shape<start = 0, end = 1>(x)
    scalar = Squeeze(size)
    begins = Less(zero, limit)
    last, parts = Loop<body = step (int64 i, bool c, float[3] state) => (bool go, float[3] after, float[3] part) {{
        row = Gather(x, i)
        after = Add(state, row)
        part = Mul(after, row)
        next = Add(i, one)
        go = {go}
    }}>({trips}, {first}, start)
}}"""


@pytest.mark.parametrize(
    ("trips", "first", "go"),
    [
        ("scalar", "", "Identity(c)"),
        ("scalar", "yes", "Less(next, limit)"),
        ("", "begins", "Less(next, limit)"),
        ("limit", "", "Identity(c)"),
    ],
)
def test_loops_that_collect(trips: str, first: str, go: str) -> None:
    calls = [[*arrays, np.array(limit, np.int64)] for arrays, limit in zip(rows(1, 5, 300), (1, 3, 300), strict=True)]
    text = LOOP.format(trips=trips or '""', first=first or '""', go=go).replace('""', "")
    same(text, calls, tolerance=1e-4)


def test_a_loop_without_rounds() -> None:
    text = LOOP.format(trips="limit", first="begins", go="Less(next, limit)")
    same(text, [[*rows(4)[0], np.array(0, np.int64)], [*rows(4)[0], np.array(2, np.int64)]])


INNER = """
    last, parts = Scan<num_scan_inputs = 1, body = step (float[3] s, float[3] a) => (float[3] after, float[3] part)
        { after = Add(s, a) part = Mul(after, a) }>(state, x)"""


def test_a_scan_in_a_loop_that_collects() -> None:
    text = f"""
    g (float[n, 3] x, int64 k) => (float[3] end, float[m, 3] sums)
        <float[3] start = {{0, 0, 0}}, int64[1] zero = {{0}}> {{
        end, sums = Loop<body = round (int64 i, bool c, float[3] state) => (bool go, float[3] next, float[3] sum)
            {{ go = Identity(c) {INNER} next = Identity(last) sum = ReduceSum<keepdims = 0>(parts, zero) }}>(k, , start)
    }}"""
    same(text, [[*rows(n)[0], np.array(k)] for n, k in ((1, 1), (4, 3), (5, 0))], tolerance=1e-4)


def refused(text: str) -> GraphError:
    with pytest.raises(GraphError) as error:
        from_onnx(parser.parse_model(HEADER + text))
    return error.value


def test_parts_of_a_size_that_their_round_computes_are_refused() -> None:
    error = refused("""
    g (float[n, 3] x, int64 k) => (float last, float[m, p, 3] parts)
        <int64[1] zero = {0}, int64[1] one = {1}, float start = {0}> {
        last, parts = Loop<body = round (int64 i, bool c, float state) => (bool go, float after, float[p, 3] part)
            { go = Identity(c) after = Cos(state) end = Reshape(i, one) part = Slice(x, zero, end, zero) }>(k, , start)
    }""")
    assert error.code == "EK0529" and "result 'parts'" in error.message and "each round computes" in error.message


@pytest.mark.parametrize("other", ["b = Relu(x) found = NonZero(b)", "found = Identity(places)"])
def test_results_of_a_size_that_an_arm_computes(other: str) -> None:
    """Both arms may name their sizes alike, which are different sizes."""
    text = f"""
    g (float[n, 2] x, bool f, int64[2, n] places) => (int64[2, m] y) {{
        y = If<then_branch = one () => (int64[2, m] first) {{ first = NonZero(x) }},
            else_branch = two () => (int64[2, m] found) {{ {other} }}>(f)
    }}"""
    calls = [
        [np.eye(n, 2, dtype=np.float32), np.array(f), np.ones((2, n), np.int64)] for n in (1, 3) for f in (True, False)
    ]
    same(text, calls)


# *** rounds that do not depend on each other ***


def distances(
    reduction: str, attributes: dict[str, Any], *, scanned: list[Any], extra: bool = False, opset: int = 17
) -> Any:
    """A Scan over the rows of `x` that compares each with all rows of `held`."""
    nodes = [
        helper.make_node("Identity", ["state"], ["state_out"]),
        helper.make_node("Sub", ["state", "row"], ["apart"]),
        helper.make_node("Mul", ["apart", "factor"], ["scaled"]),
        helper.make_node(reduction, ["scaled"], ["reduced"], **attributes),
        helper.make_node("Sqrt" if reduction != "ReduceMax" else "Exp", ["reduced"], ["result"]),
    ]
    if extra:  # an op type that is run round by round
        nodes.insert(1, helper.make_node("CumSum", ["row", "axis"], ["summed"]))
        nodes[2].input[1] = "summed"
    factor = [] if extra else [onnx.numpy_helper.from_array(np.array([2.0], np.float32), "factor")]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("state", "row")]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("state_out", "result")]
    body = helper.make_graph(nodes, "body", values, outputs, initializer=factor)
    scan = helper.make_node("Scan", ["held", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    inputs = [
        helper.make_tensor_value_info("held", onnx.TensorProto.FLOAT, ["k", 3]),
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, scanned),
    ]
    results = [onnx.ValueInfoProto(name=name) for name in ("last", "y")]
    outer = [onnx.numpy_helper.from_array(np.array([2.0], np.float32), "factor")] if extra else []
    outer += [onnx.numpy_helper.from_array(np.array(0), "axis")] if extra else []
    graph = helper.make_graph([scan], "g", inputs, results, initializer=outer)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize(("scanned", "extra"), [(["n", 3], False), (["n", 3], True), ([6, 3], False)], ids=str)
@pytest.mark.parametrize(
    ("reduction", "attributes"),
    [
        *(("ReduceSumSquare", each) for each in ({"axes": [1], "keepdims": 0}, {"axes": [-2]}, {})),
        *(("ReduceMax", each) for each in ({"axes": [1], "keepdims": 0}, {"axes": [-2]})),
        ("ReduceL1", {}),
    ],
    ids=str,
)
def test_independent_rounds_run_at_once(
    reduction: str, attributes: dict[str, Any], extra: bool, scanned: list[Any]
) -> None:
    check_rounds(distances(reduction, attributes, scanned=scanned, extra=extra), at_once=not extra)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("attributes", [{}, {"keepdims": 0}], ids=str)
@pytest.mark.parametrize("reduction", ["ReduceSum", "ReduceMax"])
def test_reductions_of_whole_rounds_keep_the_rounds_apart(
    reduction: str, attributes: dict[str, Any], opset: int
) -> None:
    """Axes are an attribute in older versions and an input in newer ones; without them all axes of a round count."""
    model = distances(reduction, attributes, scanned=["n", 3], opset=opset)
    model.graph.node[0].attribute[0].g.node[1].op_type = "Max"  # whose sums have roots
    check_rounds(model, at_once=True)


def check_rounds(model: Any, *, at_once: bool) -> None:
    """A model of `distances` gives what ONNX Runtime gives; `at_once`: by a few kernels for any number of rounds."""
    random = np.random.default_rng(0)
    given = {"held": random.random((4, 3)), "x": random.random((6, 3))}
    given = {name: array.astype(np.float32) for name, array in given.items()}
    loaded = InferenceSession().load(from_onnx(model))
    last, result = (each.to_numpy() for each in loaded.execute(*given.values()))
    np.testing.assert_array_equal(last, given["held"])
    wanted = by_runtime(model, given)[1]
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, rtol=1e-5)
    assert not at_once or len(loaded.kernel_summaries) <= 3
