"""Sequences of ONNX models whose number of items a call says, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import parser
from support.onnx_runtime import HEADER, same

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import InferenceSession, from_onnx

Arrays = list[np.ndarray[Any, Any]]


def rows(*sizes: int) -> list[Arrays]:
    random = np.random.default_rng(0)
    return [[random.standard_normal((size, 4)).astype(np.float32)] for size in sizes]


def loop(body: str, after: str, outputs: str, *, before: str = "out = SequenceEmpty()", rounds: str = "n") -> str:
    """A model whose loop has as many rounds as rows, a state `h` and a sequence `out`."""
    return f"""
    g (float[n, 4] x) => ({outputs}) <bool yes = {{1}}, float[4] h = {{0, 0, 0, 0}}, int64 one = {{1}},
        int64 minus = {{-1}}, float zero = {{0}}, int64 nought = {{0}}> {{
        size = Shape<start = 0, end = 1>(x)
        n = Squeeze(size)
        {before}
        last, items = Loop<body = round (int64 i, bool goes, float[4] h, seq(float[k]) s)
            => (bool again, float[4] after, seq(float[k]) t) {{ {body} }}>({rounds}, yes, h, out)
        {after}
    }}"""


APPENDS = "row = Gather(x, i) sum = Add(h, row) after = Tanh(sum) again = Identity(goes) t = SequenceInsert(s, after)"
TWO = """
    row = Gather(x, i) after = Add(h, row) again = Identity(goes)
    u = SequenceInsert(s, row) t = SequenceInsert(u, after)"""
SOME = """
    row = Gather(x, i) sum = ReduceSum<keepdims = 0>(row) good = Greater(sum, zero) after = Add(h, row)
    t = If<then_branch = yes_arm () => (seq(float[k]) a) { twice = Add(row, row) a = SequenceInsert(s, twice) },
        else_branch = no_arm () => (seq(float[k]) b) { b = Identity(s) }>(good)
    again = Identity(goes)"""
BOTH = """
    row = Gather(x, i) sum = ReduceSum<keepdims = 0>(row) good = Greater(sum, zero) after = Add(h, row)
    t = If<then_branch = yes_arm () => (seq(float[k]) a) { twice = Add(row, row) a = SequenceInsert(s, twice) },
        else_branch = no_arm () => (seq(float[k]) b) { c = SequenceInsert(s, h) b = SequenceInsert(c, row) }>(good)
    again = Identity(goes)"""


@pytest.mark.parametrize("body", [APPENDS, TWO, SOME, BOTH], ids=["each", "two", "some", "both"])
def test_rounds_append_to_a_sequence(body: str) -> None:
    after = "y = ConcatFromSequence<axis = 0, new_axis = 1>(items) z = ConcatFromSequence<axis = 0>(items)"
    same(loop(body, after, "float[m, 4] y, float[k] z, float[4] last"), rows(3, 7, 300))


def test_items_by_their_places() -> None:
    after = """
        y = SequenceAt(items, minus) length = SequenceLength(items) end = Sub(length, one) half = Div(end, one)
        z = SequenceAt(items, half) more = SequenceInsert(items, y) less = SequenceErase(more, nought)
        w = ConcatFromSequence<axis = -1, new_axis = 1>(less) first = SequenceInsert(items, y, nought)
        v = ConcatFromSequence<axis = 0>(first)"""
    outputs = "float[4] y, float[4] z, int64 length, float[4, k] w, float[m] v"
    same(loop(APPENDS, after, outputs), rows(3, 1, 7))


def test_a_sequence_that_has_items_before_the_loop() -> None:
    before = "first = Add(h, h) out = SequenceConstruct(h, first)"
    after = "y = ConcatFromSequence<axis = 0, new_axis = 1>(items)"
    same(loop(APPENDS, after, "float[m, 4] y", before=before), rows(2, 5))


def test_no_round_appends_anything() -> None:
    """ONNX Runtime joins no sequence without items; here it has no rows."""
    text = loop(SOME, "y = ConcatFromSequence<axis = 0, new_axis = 1>(items)", "float[m, 4] y")
    model = InferenceSession().load(from_onnx(parser.parse_model(HEADER + text)))
    assert model.execute(np.full((3, 4), -1, np.float32))[0].shape == (0, 4)
    assert model.execute(np.ones((0, 4), np.float32))[0].shape == (0, 4)


def test_rounds_while_a_condition_holds() -> None:
    body = """
        row = Gather(x, nought) double = Add(h, row) after = Identity(double) size_ = ReduceSum<keepdims = 0>(after)
        again = Less(size_, limit) t = SequenceInsert(s, after)"""
    text = loop(body, "y = ConcatFromSequence<axis = 0, new_axis = 1>(items)", "float[m, 4] y", rounds="")
    same(
        text.replace("float zero = {0}", "float limit = {9}"),
        [[np.full((2, 4), step, np.float32)] for step in (1, 0.1, 9)],
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("split", ["", ", one"])
def test_rows_as_a_sequence(axis: int, keepdims: int, split: str) -> None:
    """`x.unbind()`: PyTorch's exporter writes a split of 1 and keepdims = 0."""
    text = f"""
    g (float[n, 4] x) => (float[a] y, int64 length, float[c] z, float[d] w) <int64 one = {{1}}, int64 minus = {{-1}}> {{
        items = SplitToSequence<axis = {axis}, keepdims = {keepdims}>(x{split})
        y = SequenceAt(items, minus)
        length = SequenceLength(items)
        size = Sub(length, one)
        z = SequenceAt(items, size)
        w = ConcatFromSequence<axis = 0>(items)
    }}"""
    rank = "a, b" if keepdims else "a"
    text = text.replace("float[a]", f"float[{rank}]").replace("float[c]", f"float[{rank}]")
    same(text.replace("float[d]", "float[d, e]" if keepdims else "float[d]"), rows(3, 1, 7))


def test_parts_of_sizes_that_come_with_a_call() -> None:
    text = """
    g (float[n, 4] x, int64[2] sizes) => (float[a, 4] y, float[b, 4] z) <int64 nought = {0}, int64 one = {1}> {
        items = SplitToSequence<axis = 0>(x, sizes)
        y = SequenceAt(items, nought)
        z = SequenceAt(items, one)
    }"""
    same(text, [[rows(5)[0][0], np.array(each)] for each in ([2, 3], [5, 0])])


def test_a_loop_over_the_items_of_a_sequence() -> None:
    before = "rows = SplitToSequence<axis = 0, keepdims = 0>(x) out = SequenceEmpty()"
    body = APPENDS.replace("Gather(x, i)", "SequenceAt(rows, i)")
    same(
        loop(body, "y = ConcatFromSequence<axis = 0, new_axis = 1>(items)", "float[m, 4] y", before=before),
        rows(3, 1, 9),
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (APPENDS.replace("SequenceInsert(s, after)", "SequenceInsert(s, after, nought)"), "items are appended only"),
        (APPENDS + " u = SequenceAt(s, minus)", "reads a sequence that rounds of its loop append to"),
        (
            APPENDS.replace("t = SequenceInsert(s, after)", "t = SequenceConstruct(after)"),
            "makes another sequence of 'out', and may append to it only",
        ),
        (APPENDS.replace("SequenceInsert(s, after)", "SequenceInsert(s, x)"), "items of a sequence whose length"),
    ],
)
def test_what_rounds_may_not_do_with_a_sequence(body: str, message: str) -> None:
    before = "out = SequenceConstruct(h)"
    text = loop(body, "y = ConcatFromSequence<axis = 0, new_axis = 1>(items)", "float[m, 4] y", before=before)
    with pytest.raises(GraphError) as error:
        from_onnx(parser.parse_model(HEADER + text))
    assert error.value.code == "EK0529" and message.replace("makes", "make") in error.value.message


def test_outputs_that_are_sequences() -> None:
    """Items of a list are outputs of their own; of a sequence whose length a call says they are one tensor."""
    text = """
    g (float[3, 4] x, float[n, 4] z) => (seq(float[k]) items, float[3, 4] twice, seq(float[k]) more) {
        items = SplitToSequence<axis = 0, keepdims = 0>(x)
        twice = Add(x, x)
        more = SplitToSequence<axis = 0, keepdims = 0>(z)
    }"""
    model = InferenceSession().load(from_onnx(parser.parse_model(HEADER + text)))
    (x,), (z,) = rows(3, 5)
    outputs = [each.to_numpy() for each in model.execute(x, z)]
    for got, wanted in zip(outputs, [*x, x + x, z], strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("place", [0, 1, -1, -2])
def test_pieces_of_an_axis_of_any_size(place: int) -> None:
    """PyTorch's exporter splits so: `x.split(3)` of an axis whose size has a name."""
    same(
        f"""g (float[n, 4] x) => (float[k, 4] y, int64 m, float[n, 4] z)
            <int64 three = {{3}}, int64 place = {{{place}}}> {{
            items = SplitToSequence<axis = 0>(x, three)
            y = SequenceAt(items, place)
            m = SequenceLength(items)
            z = ConcatFromSequence<axis = 0>(items)
        }}""",
        rows(4, 6, 8),
    )


def test_a_piece_that_there_is_not() -> None:
    text = """g (float[n, 4] x) => (float[k, 4] y) <int64 three = {3}, int64 place = {1}> {
        items = SplitToSequence<axis = 0>(x, three)
        y = SequenceAt(items, place)
    }"""
    loaded = InferenceSession(interpret=True).load(from_onnx(parser.parse_model(HEADER + text)))
    with pytest.raises(GraphError, match="takes place 1 of the pieces of 3 of an axis, which has too few elements"):
        loaded(*rows(3)[0])
    joined = text.replace("y = SequenceAt(items, place)", "y = ConcatFromSequence<axis = 1>(items)")
    with pytest.raises(GraphError, match="takes the pieces of 3 of an axis of n elements") as error:
        from_onnx(parser.parse_model(HEADER + joined))
    assert error.value.code == "EK0529"


def test_the_graph_of_sequence_map_reads_names_around_it() -> None:
    """PyTorch's `torch.atleast_3d` of several tensors is exported so."""
    same(
        """g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) <float[1] two = {2}, int64 zero = {0}, int64 one = {1}> {
            both = SequenceConstruct(x, x)
            twice = SequenceMap<body = each (float[n, 4] item) => (float[n, 4] after) { after = Mul(item, two) }>(both)
            y = SequenceAt(twice, zero)
            z = SequenceAt(twice, one)
        }""",
        rows(3),
    )
