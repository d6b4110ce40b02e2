"""A failure names the lines of today's text, wherever its code comes from: an earlier text, another file, a package."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.build import build_package
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.dsl.diagnostics.places import Place
from einkorn.dsl.frontend import syntax
from einkorn.dsl.frontend.anchors import anchors_of, place_at
from einkorn.dsl.package.library import load_library
from einkorn.graph import DeviceRef, TensorValue, ops
from einkorn.graph.engine.model import Model

KERNEL = """{before}from einkorn.dsl import InputTensor, Int32, OutputTensor, float32, int32, parallel_for, register


def positive(v):
{comment}    assert v > 0.0, "not positive"
    return v


@register("picked")
def picked(out: OutputTensor[float32, "n"], x: InputTensor[float32, "m"], at: InputTensor[int32, "n"]):
    def one(i):
{comment}        out[i] = positive(x[at[i]])

    parallel_for(out.dim(0), one)
"""
X = np.array([1, 2, -3], np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Iterator[None]:
    with graphs.cache_in(tmp_path / "cache"):
        yield


def write(file: Path, before: str = "", comment: str = "") -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(KERNEL.format(before=before, comment=comment))


def load(library: Path) -> Model:
    def forward(x: TensorValue, at: TensorValue) -> object:
        return ops.custom("picked", device=DeviceRef.CPU(), values=[x, at])

    return graphs.load(forward, (np.float32, ["m"]), (np.int32, ["n"]), extensions=[library])


def failures(model: Model) -> list[KernelError]:
    """A failed assert in a helper, and an index that is too large."""
    collected = []
    for index in (2, 5):
        with pytest.raises(KernelError) as caught:
            model(X, np.array([0, index], np.int32))
        collected.append(caught.value)
    return collected


def check(model: Model, file: Path, named: str | None = None) -> None:
    """Whether the places are those of the file's text; `named` is how messages call it."""
    lines = file.read_text().splitlines()
    asserted, outside = failures(model)
    assert asserted.place is not None and outside.place is not None
    assert {asserted.place.file, outside.place.file} == {named or str(file)}
    assert lines[asserted.place.line - 1].lstrip().startswith("assert v > 0.0")
    marked = lines[outside.place.line - 1][outside.place.column - 1 : outside.place.end_column - 1]
    assert marked == "at[i]"
    calls = [int(note.split(":")[-2]) for note in asserted.notes if "called from" in note]
    assert ["positive(x[at[i]])" in lines[line - 1] for line in calls] == [True, False]
    assert "parallel_for(out.dim(0), one)" in lines[calls[1] - 1]


def test_code_from_the_cache_names_the_lines_of_the_text_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "kernels" / "one.py"
    write(file)
    assert load(file).code.tier == "compiled"
    for before, comment in (("# moved\n" * 7, ""), ("", "    # within\n" * 3), ('"""All."""\n\n', "    # too\n")):
        write(file, before, comment)
        model = load(file)
        assert model.code.tier == "cache"
        check(model, file)


def test_code_from_the_cache_names_the_file_that_uses_it(tmp_path: Path) -> None:
    write(tmp_path / "kernels" / "one.py")
    check(load(tmp_path / "kernels"), tmp_path / "kernels" / "one.py")
    write(tmp_path / "other" / "two.py", "# elsewhere\n")
    shutil.rmtree(tmp_path / "kernels")
    model = load(tmp_path / "other")
    assert model.code.tier == "cache"
    check(model, tmp_path / "other" / "two.py")
    declared = [note for note in failures(model)[1].notes if "declared" in note]
    assert declared and all("two.py" in note for note in declared)


def test_a_package_names_the_lines_of_its_program(tmp_path: Path) -> None:
    file = tmp_path / "kernels" / "one.py"
    write(file)
    package = tmp_path / "one.pkg"
    build_package(str(file), str(package), ["host"])
    check(load(file), file)  # what is kept of the file's own code changes nothing
    model = load(package)
    check(model, file, "one.py")


def test_every_node_has_an_anchor(tmp_path: Path) -> None:
    file = tmp_path / "kernels" / "one.py"
    write(file)
    before = load_library(file).kernels["picked"].portable
    spans = [[Place(f.file, *node.span) for node in syntax.walk(f.syntax)] for f in before.functions]
    anchors = anchors_of([before], [place for places in spans for place in places])
    assert all(len(anchor) == 3 for anchor in anchors.values())
    assert all(place_at(anchor, [before]) == place for place, anchor in anchors.items())
    write(file, "# moved\n")
    after = load_library(file).kernels["picked"].portable
    moved = [place_at(anchor, [after]) for anchor in anchors.values()]
    assert [m and m.line for m in moved] == [place.line + 1 for place in anchors]


SPARSE = """{before}from einkorn.dsl import InputTensor, OutputTensor, VariadicTensors, float32, register


@register("sparse")
def sparse(out: OutputTensor[float32, "k"], xs: VariadicTensors[float32, "n_k"]):
    p = out.pointer(0)
    p.store(xs[0].load({comment}
        0, width=4))


@sparse.shape
def sizes(xs):
    return xs[0].dim(0)
"""


def test_places_that_are_no_nodes_move_with_their_functions(tmp_path: Path) -> None:
    """The operands of a call, without its brackets; an argument whose function is in another program."""
    file = tmp_path / "sparse.py"
    file.write_text(SPARSE.format(before="", comment=""))
    kernel = load_library(file).kernels["sparse"].portable
    line = next(k for k, text in enumerate(SPARSE.splitlines(), 1) if "xs[0].load" in text)
    operands, argument = Place(str(file), line + 1, 9, line + 1, 19), kernel.schema.inputs[0].place
    inside = Place(str(file), line, 6, line, 8)  # of no node's begin and end: the smallest around it
    assert kernel.shape is not None and argument is not None
    anchors = anchors_of([kernel], [operands, inside]) | anchors_of([kernel.shape], [argument])
    file.write_text(SPARSE.format(before="# moved" + chr(10), comment="# and more" + chr(10)))
    after = load_library(file).kernels["sparse"].portable
    assert after.shape is not None and len(anchors[argument]) == 2
    assert place_at(anchors[operands], [after]) == Place(str(file), line + 3, 9, line + 3, 19)
    around = place_at(anchors[inside], [after])
    assert around is not None and (around.line, around.column) == (line + 1, 5)
    moved = place_at(anchors[argument], [after, after.shape])
    assert moved is not None and (moved.line, moved.column) == (argument.line + 1, argument.column)


def test_a_place_that_is_in_no_program() -> None:
    place = Place("elsewhere.py", 3, 4, 5, 6)
    anchor = anchors_of([], [place])[place]
    assert place_at(anchor, []) == place
    assert place_at(["0123456789abcdef", 0, 0], []) is None
