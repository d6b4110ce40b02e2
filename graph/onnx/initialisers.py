"""Takes the elements of large initialisers out of the bytes of a model before protobuf reads these, and leaves them
where they are.

Protobuf copies whatever it reads. A model is a message of messages, each field a number, a kind and a length, so that
the bytes of the elements can be found by stepping over all else. What is left is a model of a few kilobytes, and the
elements are views of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

MIN_MAPPED_BYTES = 4096  # smaller ones are read with the rest
MOST_PARTS = 100  # an initialiser with more fields keeps its elements in one of these each
MOST_FIELDS = 1 << 20  # of a message: Python steps over so many in a second
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _MessageField(NamedTuple):
    number: int
    kind: int
    start: int  # of its key
    first: int  # of its content
    end: int


class _NoMessage(Exception):
    """The bytes are no message of fields."""


def take_out(data: memoryview) -> tuple[bytes | memoryview, dict[int, memoryview]]:
    """The bytes of a model without the elements of its large initialisers, and these by their number in the graph."""
    elements_of: dict[int, memoryview] = {}
    try:
        rest = bytearray()
        done = count = 0
        for field in _fields(data, 0, len(data)):
            if field.number == GRAPH and field.kind == _BYTES:
                graph, count = _graph(data, field.first, field.end, count, elements_of)
                rest += data[done : field.start]
                rest += _whole(GRAPH, graph)
                done = field.end
        rest += data[done:]
    except _NoMessage:
        return data, {}
    return (bytes(rest), elements_of) if elements_of else (data, {})


def _graph(
    data: memoryview, first: int, end: int, count: int, elements_of: dict[int, memoryview]
) -> tuple[bytearray, int]:
    """A graph without the elements of its large initialisers; `count` of them stood before."""
    rest, done = bytearray(), first
    for field in _fields(data, first, end):
        if field.number != INITIALIZER or field.kind != _BYTES:
            continue
        if field.end - field.first >= MIN_MAPPED_BYTES:
            parts = list(islice(_fields(data, field.first, field.end), MOST_PARTS))
            raw = [part for part in parts if part.number == RAW_DATA]
            few = len(parts) < MOST_PARTS and len(raw) == 1
            if few and raw[0].kind == _BYTES and raw[0].end - raw[0].first >= MIN_MAPPED_BYTES:
                (elements,) = raw
                elements_of[count] = data[elements.first : elements.end]
                rest += data[done : field.start]
                rest += _whole(INITIALIZER, data[field.first : elements.start], data[elements.end : field.end])
                done = field.end
        count += 1
    rest += data[done:end]
    return rest, count


def _fields(data: memoryview, at: int, end: int) -> Iterator[_MessageField]:
    """The fields of a message."""
    for _ in range(MOST_FIELDS):
        if at >= end:
            return
        start = at
        key, at = _varint(data, at, end)
        kind, first = key & 7, at
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _BYTES:
            length, first = _varint(data, at, end)
            at = first + length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise _NoMessage
        if at > end or not key >> 3:
            raise _NoMessage
        yield _MessageField(key >> 3, kind, start, first, at)
    raise _NoMessage


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, seven bits a byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _NoMessage
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _NoMessage


def _whole(number: int, *parts: bytearray | memoryview) -> bytearray:
    """A field of bytes."""
    made = bytearray()
    for value in (number << 3 | _BYTES, sum(len(part) for part in parts)):
        while value >= 0x80:
            made.append(value & 0x7F | 0x80)
            value >>= 7
        made.append(value)
    for part in parts:
        made += part
    return made
