"""What notebooks show of kernels, graphs, models and profiles: HTML and text that say the same, from one renderer."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import kernels_of
from einkorn.dsl.diagnostics.cards import Card, CardTable, CodeBlock, Note
from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

VOID = {"br", "hr", "img"}

KERNELS = '''
from typing import TypeVar
from einkorn.dsl import *
T = TypeVar("T", bound=Floating)


@register("card::scale")
def scale(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, by: float = 2.0):
    """Multiplies <b>all</b> & "more"."""
    foreach(out, lambda i: x[i] * by)


@register("card::grow")
def grow(x: MutableInputTensor[float32, "n"]):
    for i in range(x.dim(0)):
        x[i] = x[i] + 1.0
'''


class Reader(HTMLParser):
    """Reads HTML strictly: what is opened is closed, and nothing is fetched from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {name for name, _ in attributes} & {"src", "href", "class", "id"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def shown(value: Any) -> tuple[Reader, str]:
    """The HTML and the text of an object's card; the words of the text are in the HTML."""
    from IPython.lib.pretty import pretty  # the way that IPython's prompt goes

    reader, text = Reader(value._repr_html_()), pretty(value)
    assert reader.tags <= {"div", "span", "table", "tr", "th", "td", "pre", "details", "summary"}
    missing = [word for word in text.replace(":", " ").split() if word not in " ".join(reader.words)]
    assert not missing, missing
    return reader, text


@pytest.fixture(scope="module")
def network() -> Graph:
    cpu = DeviceRef.CPU()
    types = [TensorType(DType.float32, ["n", 4], cpu), TensorType(DType.float32, [4, "m"], cpu)]
    return Graph("net<1>", forward=lambda x, w: ops.softmax(ops.relu(x @ w) + 1.0), input_types=types)


def test_the_card_of_a_kernel() -> None:
    kernels = kernels_of(KERNELS, name="<cards>")
    scale = kernels["card::scale"]
    reader, text = shown(scale)
    assert text.splitlines()[0] == 'kernel card::scale(x: T["*s"], *, by: float = 2.0) -> out: T["*s"]'
    assert 'Multiplies <b>all</b> & "more".' in text and "b" not in reader.tags
    assert "defined at: <cards>:7:1" in text and "called with" not in text
    scale(np.ones(3, np.float32), by=3.0)
    _, text = shown(scale)
    assert "float32[s_0]  float32[s_0]  by=3.0      cpu:0   yes" in text
    _, text = shown(kernels["card::grow"])
    assert "x: is changed in place" in text


def test_the_card_of_a_graph(network: Graph) -> None:
    reader, text = shown(network)
    assert "graph net<1>" in text and "matmul(%0, %1) : Tensor[float32, (n, m), cpu:0]" in text
    assert "details" not in reader.tags  # it is short
    cpu = DeviceRef.CPU()
    unfinished = Graph("open", input_types=[BufferType(DType.float32, [2], cpu)])
    assert shown(unfinished)[1] == "graph open, which is not finished"


def test_the_cards_of_a_model_and_of_a_profile(network: Graph) -> None:
    session = InferenceSession()
    model = session.load(network)
    with session.profile() as profile:
        model(np.ones((3, 4), np.float32), np.ones((4, 5), np.float32))
    _, text = shown(model)
    assert "input1  float32  (4, m)  cpu:0" in text and "does where it stores" in text and "relu (" in text
    _, text = shown(profile)
    assert text.startswith("profile 1 call, ") and "softmax" in text
    assert profile._repr_html_().count("<div style='width:") == len(profile.rows())  # a bar in each row


def test_a_list_of_kernels_is_one_line() -> None:
    from IPython.lib.pretty import pretty

    kernels = list(kernels_of(KERNELS, name="<cards>").values())
    assert pretty(kernels) == "[<kernel card::scale>, <kernel card::grow>]"


def test_long_tables_and_texts_are_cut_and_folded() -> None:
    table = CardTable(("row", "share"), [(str(k), f"{k}%") for k in range(40)], numbers=(0,), bars=1, title="rows")
    card = Card("table", "long", [table, CodeBlock("a\nb", "two lines", folded=True), Note("end")], [("facts", "one")])
    reader, text = Reader(card._repr_html_()), str(card)
    assert "details" in reader.tags and "and 10 more" in " ".join(reader.words)
    assert text.splitlines()[:3] == ["table long", "rows", "row"]
    assert text.splitlines()[-5:] == ["and 10 more", "a", "b", "end", "facts: one"]


def test_what_brings_its_own_card_and_what_has_none() -> None:
    from einkorn.dsl.diagnostics.rich import Rich

    class Own(Rich):
        def card(self) -> Card:
            return Card("own", "brought")

    class Plain(Rich):
        def __repr__(self) -> str:
            return "<plain>"

    assert shown(Own())[1] == "own brought"
    assert shown(Plain())[1] == "Plain <plain>"
