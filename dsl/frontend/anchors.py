"""Anchors places so that they outlive an edit: in a node of a function of a program, not in a line of a file.

Code is kept under a digest that knows no places, so code from an earlier process may belong to a text that has moved
since. What code says of its text is therefore an anchor; whoever shows it looks it up in today's program, whose tree is
the same.

Input: programs and places, or an anchor. Output: anchors as JSON values, or a place. Non-goals: what is reported there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from ..diagnostics.places import Place
from . import syntax
from .program import PortableKernel

# [digest of the program, function, node], or the numbers of a plain place.
Anchor = list[str | int]

_DIGEST = 16  # hexadecimal digits of a program's digest that tell it from others of the same graph


def anchors_of(kernels: Iterable[PortableKernel], places: Iterable[Place]) -> dict[Place, Anchor]:
    """An anchor for each place: of the first node that stands there; a plain place where none does."""
    anchors: dict[Place, Anchor] = {}
    missing = set(places)
    for kernel in {id(kernel): kernel for kernel in kernels}.values():  # to compare them by content takes longer
        if not missing:
            break
        here = _in_functions(kernel, missing)
        anchors |= here
        missing -= here.keys()
    return anchors | {place: plain_anchor(place) for place in missing}


def plain_anchor(place: Place) -> Anchor:
    """The anchor of a place that is in no program, or that is never kept."""
    return [place.file, place.line, place.column, place.end_line, place.end_column]


def _in_functions(kernel: PortableKernel, places: set[Place]) -> dict[Place, Anchor]:
    anchors: dict[Place, Anchor] = {}
    for index, function in enumerate(kernel.functions):
        first, _, last, _ = function.syntax.span
        if not any(p.file == function.file and first <= p.line <= last for p in places):
            continue
        for number, node in enumerate(syntax.walk(function.syntax)):
            place = Place(function.file, *node.span)
            if place in places:
                anchors.setdefault(place, [kernel.digest[:_DIGEST], index, number])
    return anchors


def place_at(anchor: Sequence[str | int], kernels: Iterable[PortableKernel]) -> Place | None:
    """Where an anchor lies today; None where the programs have no such thing."""
    if len(anchor) == 5:
        return Place(str(anchor[0]), *(int(number) for number in anchor[1:]))
    digest, index, number = anchor[0], int(anchor[1]), int(anchor[2])
    kernel = next((kernel for kernel in kernels if kernel.digest[:_DIGEST] == digest), None)
    if kernel is None or not 0 <= index < len(kernel.functions):
        return None
    function = kernel.functions[index]
    node = next(islice(syntax.walk(function.syntax), max(0, number), None), None)
    return None if node is None else Place(function.file, *node.span)
