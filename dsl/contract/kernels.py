"""Describes the kernels of an entry for a device: what a launch needs to know of each, and what its arguments are.

The table lies in the entry's half for the host as JSON text, under `abi.KERNELS`. Code for the device that belongs to
it holds a byte of the name `abi.STAMP` and the table's digest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field

from ..diagnostics.dataclass import dataclass
from ..diagnostics.json_reading import Misread, count, expected, listed, of_fields, one_of, read_json, text
from ..types.dtype import DType
from . import abi

MAX_PARAMETERS = 4096  # parameters of a kernel; no hardware takes so many


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel.

    Attributes:
        kind: pointer, int or float; "map" is a tensor map (see `abi.TensorMapRequest`).
        dtype: of the number, or of the elements that the pointer is to or the map describes.
        bytes: how many of an argument's 8 bytes it is; of a tensor map all of its bytes.
        buffer: of a pointer to a buffer its number among those of its group, in order of first use; else -1.
        access: of a pointer: read, write or read-write; "reports" of that to where a kernel reports (see `abi`).
    """

    kind: str
    dtype: str
    bytes: int
    buffer: int = -1
    access: str = ""


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel: its name in the code, the sizes of block and cluster, the bytes of its own shared memory.

    `op` is whose kernel it is, `anchor` where it is launched (see `frontend.anchors`).
    """

    symbol: str
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    parameters: tuple[KernelParameter, ...] = ()
    op: str = ""
    anchor: object = field(default=None, compare=False)


@dataclass(frozen=True)
class KernelTable:
    """The kernels of an entry by their numbers. The code for the device has the same digest."""

    digest: str
    kernels: tuple[DeviceKernel, ...]

    @property
    def stamp(self) -> str:
        """The name that the code for the device holds."""
        return abi.STAMP + self.digest

    @property
    def report(self) -> bool:
        """Whether some kernel may report, into memory that its caller gives."""
        return any(parameter.access == "reports" for kernel in self.kernels for parameter in kernel.parameters)

    def fits(self, code: bytes) -> bool:
        """Whether code for a device is the one that belongs to it."""
        return self.stamp.encode() in code

    def to_bytes(self) -> bytes:
        """The table as JSON text."""
        return json.dumps({"digest": self.digest, "kernels": [asdict(each) for each in self.kernels]}).encode()


def read_kernels(data: bytes) -> KernelTable:
    """The table of a JSON text.

    Raises:
        Misread: it is not a valid table. What is read here is trusted when kernels are launched.
    """
    try:
        fields = of_fields(read_json(data), ("digest", "kernels"))
        return KernelTable(text(fields["digest"]), listed(fields["kernels"], _kernel))
    except Misread as wrong:
        raise wrong.below("kernels") from None
    except ValueError as error:
        raise Misread(f"has a table of kernels that is not JSON: {error}") from None


def _kernel(data: object) -> DeviceKernel:
    fields = of_fields(data, ("symbol", "block", "cluster", "shared", "parameters", "op", "anchor"))
    parameters = listed(fields["parameters"], _parameter)
    if len(parameters) > MAX_PARAMETERS:
        raise Misread("has too many parameters")
    block, cluster = _sizes(fields["block"]), _sizes(fields["cluster"])
    return DeviceKernel(
        text(fields["symbol"]),
        block,
        cluster,
        count(fields["shared"]),
        parameters,
        text(fields["op"]),
        fields["anchor"],
    )


def _sizes(data: object) -> tuple[int, int, int]:
    sizes = listed(data, count)
    if len(sizes) != 3 or 0 in sizes:
        expected("three sizes", data)
    return sizes[0], sizes[1], sizes[2]


def _parameter(data: object) -> KernelParameter:
    fields = of_fields(data, ("kind", "dtype", "bytes", "buffer", "access"))
    if type(fields["buffer"]) is not int or fields["buffer"] < -1:
        expected("the number of a buffer", fields["buffer"])
    kind = one_of(fields["kind"], ("pointer", "int", "float", "map"))
    sizes = (abi.TENSOR_MAP_SIZE,) if kind == "map" else (1, 2, 4, 8)
    if type(fields["bytes"]) is not int or fields["bytes"] not in sizes:
        expected(f"{' or '.join(map(str, sizes))} bytes", fields["bytes"])
    return KernelParameter(
        kind,
        one_of(fields["dtype"], DType.__members__),
        fields["bytes"],
        fields["buffer"],
        one_of(fields["access"], ("", "read", "write", "read-write", "reports")),
    )
