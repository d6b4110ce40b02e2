"""Anchors places so that they outlive an edit: in a node of a function of a program, not in a line of a file.

Code is kept under a digest without places, so code from an earlier process may belong to a text that has moved
since. What code says of its text is therefore an anchor; code that shows it looks it up in today's program, whose tree
is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from ..diagnostics.places import Place
from ..signature.schema import TensorArgument
from . import syntax
from .program import PortableKernel, SourceFunction

# [digest of the program, function, node]; [digest, function, first node, last node] for what reaches from the begin of
# one to the end of another; [digest, argument] for one that a signature declares; the parts of a plain place.
Anchor = list[str | int]

_DIGEST = 16  # hexadecimal digits of a program's digest that distinguish it from others of the same graph


def anchors_of(kernels: Iterable[PortableKernel], places: Iterable[Place]) -> dict[Place, Anchor]:
    """An anchor for each place: of the nodes that stand there; a plain place where no program has it."""
    anchors: dict[Place, Anchor] = {}
    missing = set(places)
    for kernel in {id(kernel): kernel for kernel in kernels}.values():  # to compare them by content takes longer
        if not missing:
            break
        here = _in_signature(kernel, missing) | _in_functions(kernel, missing)
        anchors |= here
        missing -= here.keys()
    return anchors | {place: plain_anchor(place) for place in missing}


def plain_anchor(place: Place) -> Anchor:
    """The anchor of a place that is in no program, or that is never kept."""
    return [place.file, place.line, place.column, place.end_line, place.end_column]


def _in_signature(kernel: PortableKernel, places: set[Place]) -> dict[Place, Anchor]:
    """Those of arguments: the program of a shape function has not the nodes of its op's signature."""
    declared = [argument.place for argument in kernel.schema.arguments if isinstance(argument, TensorArgument)]
    return {place: [kernel.digest[:_DIGEST], k] for k, place in enumerate(declared) if place in places}


def _in_functions(kernel: PortableKernel, places: set[Place]) -> dict[Place, Anchor]:
    anchors: dict[Place, Anchor] = {}
    for index, function in enumerate(kernel.functions):
        first, _, last, _ = function.syntax.span
        within = {place for place in places if place.file == function.file and first <= place.line <= last}
        if not within:
            continue
        at: list[str | int] = [kernel.digest[:_DIGEST], index]
        spans = [node.span for node in syntax.walk(function.syntax)]
        wanted = {
            (place.line, place.column, place.end_line, place.end_column): place
            for place in within
            if type(place) is Place
        }
        for number, span in enumerate(spans):
            place = wanted.get(span)
            if place is not None:
                anchors.setdefault(place, [*at, number])
        for place in within - anchors.keys():
            anchors[place] = [*at, *_nodes_around(place, spans)]
    return anchors


def _nodes_around(place: Place, spans: Sequence[syntax.Span]) -> list[int]:
    """The node that a place begins with and the one that it ends with; else the smallest that has all of it."""
    begin, end = (place.line, place.column), (place.end_line or place.line, place.end_column)
    first = next((k for k, span in enumerate(spans) if span[:2] == begin), None)
    last = next((k for k, span in enumerate(spans) if span[2:] == end), None)
    if first is not None and last is not None:
        return [first, last]
    whole = [k for k, span in enumerate(spans) if span[:2] <= begin and end <= span[2:]]
    return [max(whole, key=lambda k: (spans[k][:2], [-part for part in spans[k][2:]]), default=0)]


def place_at(anchor: Sequence[str | int], kernels: Iterable[PortableKernel]) -> Place | None:
    """Where an anchor lies today; None where the programs have no such thing."""
    if len(anchor) == 5:
        return Place(str(anchor[0]), *(int(number) for number in anchor[1:]))
    digest, index, *numbers = anchor[0], *(int(number) for number in anchor[1:])
    kernel = next((kernel for kernel in kernels if kernel.digest[:_DIGEST] == digest), None)
    if kernel is None or index < 0:
        return None
    if not numbers:
        declared = kernel.schema.arguments[index] if index < len(kernel.schema.arguments) else None
        return declared.place if isinstance(declared, TensorArgument) else None
    if index >= len(kernel.functions):
        return None
    function = kernel.functions[index]
    first, last = _span(function, numbers[0]), _span(function, numbers[-1])
    return None if first is None or last is None else Place(function.file, *first[:2], *last[2:])


def _span(function: SourceFunction, number: int) -> syntax.Span | None:
    """Where the node of a number stands."""
    node = next(islice(syntax.walk(function.syntax), max(0, number), None), None)
    return None if node is None else node.span
