"""Runs what tests wrote for the host on a simulated GPU: graphs are moved there, and so are the arrays of their calls.

with simulated.sessions():
    test_elementwise_rows(np.float32)
"""

from __future__ import annotations

import copy
import ctypes
import functools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.contract import abi
from einkorn.dsl.contract.unit import EntrySpec
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession
from einkorn.graph.driver.device import CodeFile
from einkorn.graph.driver.devices import Device
from einkorn.graph.ir import ConstantTensor, External, GraphIR, Item
from einkorn.graph.types.tensor_type import ShapedType


def _type(type: ShapedType) -> ShapedType:
    moved = copy.copy(type)
    object.__setattr__(moved, "device", DeviceRef.GPU())
    return moved


def _item(item: Item) -> Item:
    if isinstance(item, ConstantTensor | External):
        return replace(item, type=_type(item.type))  # type: ignore[arg-type]
    return replace(item, out_types=tuple(_type(type) for type in item.out_types))  # type: ignore[arg-type]


def moved(ir: GraphIR) -> GraphIR:
    """A graph with all of its values on gpu:0."""
    return replace(ir, inputs=tuple(map(_type, ir.inputs)), nodes=tuple(map(_item, ir.nodes)))


class OnDevice:
    """A model that is called with arrays."""

    def __init__(self, model: Any, device: Device) -> None:
        self.model, self.device = model, device

    def __call__(self, *values: Any) -> list[Buffer]:
        result: list[Buffer] = self.model(*(Buffer.from_numpy(np.asarray(value)).to(self.device) for value in values))
        return result


@contextmanager
def sessions(device: Device | None = None) -> Iterator[None]:
    """Within it, every session loads for a simulated GPU."""
    chosen = device or Accelerator("sim")
    real = InferenceSession.load

    def load(session: InferenceSession, graph: Graph, **keywords: Any) -> Any:
        there = copy.copy(graph)
        there._ir = moved(graph.ir)
        session.devices = [chosen]
        weights = {
            name: Buffer.from_numpy(np.asarray(array)).to(chosen)
            for name, array in (keywords.pop("weights_registry", None) or {}).items()
        }
        return OnDevice(real(session, there, weights_registry=weights, **keywords), chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InferenceSession, "load", load)
        yield


@functools.lru_cache(maxsize=4)
def _pieces(spec: EntrySpec, target: str) -> Any:
    return compile_entry(spec, lookup(target), hosts=[host()]).pieces


def run_unit(spec: EntrySpec, device: Device, arrays: Sequence[Any], outputs: int = 0) -> None:
    """Compiles a unit without sizes that are known at the call only, and calls its entry on memory of the device.

    The last arrays are `outputs`, in which nothing is before. What the checks of the device found is an error.
    """
    driver = device.driver
    pieces = _pieces(spec, driver.targets[-1])
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, piece in zip(("host", "device"), pieces, strict=True):
            path = Path(folder, name)
            path.write_bytes(piece.code)
            files.append(CodeFile(piece.kind, piece.target, path, len(piece.code)))
        code = driver.load(files)
    table, context, dims = driver.table(code), abi.Context(), (ctypes.c_int64 * 1)()
    assert table is not None
    taken = driver.allocate(code.scratch(ctypes.addressof(dims), 0)) if code.scratch else None
    if taken is not None:
        table.scratch, table.scratch_size = driver.address_of(taken), taken.size
    reports: list[int] = []
    report = abi.ReportFunction(lambda context, site, values: reports.append(site))
    context.report = ctypes.cast(report, ctypes.c_void_p)
    context.threads, context.device, table.context = 1, ctypes.addressof(table), ctypes.addressof(context)
    there = [driver.place(array) for array in arrays[: len(arrays) - outputs]]
    there += [driver.allocate(array.nbytes) for array in arrays[len(arrays) - outputs :]]
    pointers = (ctypes.c_void_p * len(arrays))(*map(driver.address_of, there))
    status = code.entry(*(ctypes.addressof(each) for each in (context, pointers, dims)))
    result = driver.finding()
    assert result is None, {name: getattr(result[0], name) for name, _ in result[0]._fields_}  # type: ignore[misc]
    assert status == 0 and not reports and context.status == 0, (status, context.status, reports)
    for array, memory in zip(arrays, there, strict=True):
        driver.copy(array, memory)
