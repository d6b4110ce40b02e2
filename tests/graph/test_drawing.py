"""Drawings of graphs: text for Graphviz, and pages."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import HOST, cache_in

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import BufferType, DType, Graph, InferenceSession, TensorType, Weight, ops

X = TensorType(DType.float32, ["rows", 4], HOST)
COUNT = TensorType(DType.int64, [], HOST)
NAME = 'a "graph" <script>alert(1)</script> & more \\ $name'


def network(x: Any, n: Any) -> Any:
    h = ops.softmax(ops.gelu(x @ Weight("w <i>", DType.float32, [4, 4], HOST)) + 1)

    def body(v: Any, k: Any) -> Any:
        return [*ops.cond(k % 2 == 0, [v.type], lambda: ops.softmax(v + h), lambda: v * 2), k + 1]

    return ops.softmax(ops.while_loop((h, 0), lambda v, k: k < n, body)[0])


def graph() -> Graph:
    return Graph(NAME, network, [X, COUNT])


STATEMENTS = re.compile(
    r"""digraph\ "(\\.|[^"\\])*"\ \{ | \} | subgraph\ cluster_\d+\ \{
    | (node|edge)\ \[.*\] | label="(\\.|[^"\\])*"
    | n\d+\ \[label="(\\.|[^"\\])*",\ shape=\w+\]
    | n\d+\ ->\ n\d+\ \[(label="(\\.|[^"\\])*"|style=dashed,\ constraint=false)\]""",
    re.VERBOSE,
)


def test_the_text_for_graphviz() -> None:
    text = graph().to_dot()
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        assert STATEMENTS.fullmatch(line), line
    assert text.count("{") == text.count("}") == 1 + 4, "a frame for each body"
    boxes = re.findall(r"^\s*(n\d+) \[label", text, re.MULTILINE)
    assert len(boxes) == len(set(boxes))
    edges = re.findall(r"^\s*(n\d+) -> (n\d+) \[label", text, re.MULTILINE)
    assert {end for edge in edges for end in edge} <= set(boxes)
    matmul = next(line.split()[0] for line in lines if '"matmul' in line)
    assert sum(end == matmul for _, end in edges) == 2 and sum(start == matmul for start, _ in edges) == 1
    assert graph().to_dot() == text


class Reader(HTMLParser):
    """Sees to it that tags are closed, and gathers what is where."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.classes: list[str] = []
        self.groups: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        actual = dict(attrs)
        self.classes.append(actual.get("class") or "")
        if tag == "div" and "data-group" in actual:
            self.groups.append(actual["data-group"] or "")
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == "path" or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert not reader.open and not reader.links
    return reader


def test_the_page_of_a_graph(tmp_path: Path) -> None:
    with cache_in(tmp_path / "cache"):
        text = graph().to_html(tmp_path / "graph.html", sizes={"rows": 100})
        assert not list((tmp_path / "cache").rglob("*.so")), "it compiles nothing"
    assert (tmp_path / "graph.html").read_text(encoding="utf-8") == text == graph().to_html(sizes={"rows": 100})
    page = read(text)
    assert "<script>alert" not in text and NAME in page.text and "w <i>" in page.text
    outline = [each for each in page.classes if each.startswith("row ")]
    expected = ["input", "input", "weight", "open", "else", "open", "else", "close", "close", "output"]
    assert [each.split()[1] for each in outline if each not in ("row op", "row constant", "row yield")] == expected
    assert len(set(page.groups)) == len(re.findall(r'class="mark"', text)) > 5
    assert "rows = 100" in page.text and "an arena of" in page.text and "test_drawing.py" in text
    assert (
        "Tensor[float32, (rows, 4), cpu:0]" in page.text
        and "time" not in page.text.split("Groups")[1].split("Memory")[0]
    )


def test_times_of_groups() -> None:
    made = Graph("timed", lambda x: ops.softmax(ops.softmax(x) + 1), [X])
    session = InferenceSession()
    model = session.load(made)
    with session.profile() as profile:
        for _ in range(3):
            model(np.ones((5, 4), np.float32))
    page = read(made.to_html(profile=profile))
    assert "share" in page.text and re.search(r"\d (ns|us|ms)", page.text.split("Groups")[1])


def test_graphs_with_little_in_them() -> None:
    """No op, no temporaries, no elements, sizes that cannot be, sizes computed on the way."""
    same = Graph("same", lambda x: x, [X])
    assert "No temporaries" in read(same.to_html()).text and "n0 -> n1" in same.to_dot()
    read(Graph("empty", lambda x: ops.softmax(ops.softmax(x)), [X]).to_html(sizes={"rows": 0}))
    less = Graph("less", lambda x: ops.softmax(ops.softmax(x[100:]) + 1), [X])
    assert "no picture for these sizes" in read(less.to_html(sizes={"rows": 3})).text
    buffers = Graph("buffers", lambda y: y.__setitem__(..., y[...] + 1), [BufferType(DType.int8, ["n"], HOST)])
    read(buffers.to_html())
    kernels = str(Path(__file__).parent / "shape_kernels.py")

    def staged(x: Any) -> Any:
        return ops.softmax(ops.cast(ops.custom("nonzero", device=HOST, values=[ops.softmax(x)])[0], DType.float32) + 1)

    page = read(Graph("staged", staged, [X], custom_extensions=[kernels]).to_html())
    assert "stage 1" in page.text


def test_what_is_refused() -> None:
    with Graph("open", input_types=[X]) as unfinished, pytest.raises(GraphError, match="no output yet"):
        unfinished.to_dot()
    for sizes in ({"n": 3}, {"rows": -1}, {"rows": 1.5}):
        with pytest.raises(GraphError) as caught:
            graph().to_html(sizes=sizes)  # type: ignore[arg-type]
        assert caught.value.code == "EK0478" and caught.value.place is not None
