"""Reads the file of a model and says what is wrong with it.

A file is mapped, and the elements of its large initialisers stay where they are (see `initialisers`).

See also `tensors` (the tensors), `importer` (the nodes).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, NoReturn

import onnx
from google.protobuf.message import DecodeError

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, shown_value
from ...dsl.diagnostics.places import shown_path, user_place
from .initialisers import take_out

MOST_BYTES = (1 << 31) - 1  # more no message of protobuf has
OLDEST = 1


@dataclass(frozen=True)
class ReadModel:
    """A model as it was read.

    Attributes:
        proto: the `ModelProto`.
        folder: of its file, where external data may lie; None when it came without one.
        opsets: the version of each domain.
        shown: what errors call it.
        elements: the bytes of initialisers that `proto` has without their elements, by their number in its graph.
    """

    proto: Any
    folder: Path | None
    opsets: dict[str, int]
    shown: str
    elements: Mapping[int, memoryview] = field(default_factory=dict)


def read_model(model: object) -> ReadModel:
    """Reads a model.

    Raises:
        GraphError: EK0526, it is not a model, is damaged, or has a version that is not known.
    """
    folder: Path | None = None
    shown = "the model"
    elements: dict[int, memoryview] = {}
    if isinstance(model, onnx.ModelProto):
        proto = model
    elif isinstance(model, bytes | bytearray | memoryview):
        proto, elements = _parse(memoryview(bytes(model)), shown)
    elif isinstance(model, str | os.PathLike):
        path = Path(os.fspath(model))
        shown = shown_path(str(path))
        folder = path.parent
        proto, elements = _parse(_mapped(path, shown), shown)
    else:
        _refuse(f"a model is a path, bytes or an onnx.ModelProto, not {shown_value(model)}")
    return ReadModel(proto, folder, _opsets(proto, shown), shown, elements)


def _mapped(path: Path, shown: str) -> memoryview:
    """The bytes of a file, mapped into memory."""
    try:
        if not path.is_file():
            _refuse(f"{shown} is not a file" if path.exists() else f"there is no file {shown}")
        size = path.stat().st_size
        if size > MOST_BYTES:
            _refuse(f"{shown} has {size:,} bytes; a model without its external data has at most {MOST_BYTES:,}")
        if not size:
            return memoryview(b"")
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        _refuse(f"{shown} cannot be read: {error.strerror or error}")


def _parse(data: memoryview, shown: str) -> tuple[Any, dict[int, memoryview]]:
    proto = onnx.ModelProto()
    if not data:
        _refuse(f"{shown} is empty")
    rest, elements = take_out(data)
    try:
        proto.ParseFromString(rest)
    except (DecodeError, ValueError, RuntimeError) as error:
        _refuse(f"{shown} is not an ONNX model, or is cut short or damaged: {str(error)[:200]}")
    return proto, elements


def _opsets(proto: Any, shown: str) -> dict[str, int]:
    if not proto.HasField("graph"):
        _refuse(f"{shown} has no graph")
    if not 3 <= proto.ir_version <= onnx.IR_VERSION:
        text = f"{shown} has version {proto.ir_version} of ONNX's file format; 3 to {onnx.IR_VERSION} are known"
        _refuse(
            text,
            hint="a newer version of the package 'onnx' may support it" if proto.ir_version > onnx.IR_VERSION else None,
        )
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = plain_domain(entry.domain)
        if opsets.get(domain, entry.version) != entry.version:  # some converters list a domain twice
            versions = f"{opsets[domain]} and {entry.version}"
            _refuse(f"{shown} imports two versions of the operators of {domain or 'ai.onnx'!r}: {versions}")
        opsets[domain] = entry.version
    check_opset(opsets, shown)
    return opsets


def check_opset(opsets: dict[str, int], shown: str) -> None:
    """Raises GraphError EK0526 unless the operators of the main domain have a version that is known."""
    newest = onnx.defs.onnx_opset_version()
    version = opsets.get("")
    if version is not None and not OLDEST <= version <= newest:
        text = f"{shown} has version {version} of ONNX's operators; {OLDEST} to {newest} are known"
        _refuse(text)


def plain_domain(domain: str) -> str:
    """A domain of operators; the main one has two names."""
    return "" if domain == "ai.onnx" else domain


def _refuse(message: str, hint: str | None = None) -> NoReturn:
    raise GraphError(message, code="EK0526", place=user_place(), argument="model", hint=hint)
