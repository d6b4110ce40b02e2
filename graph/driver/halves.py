"""Opens code that has two halves: one for the host, which launches kernels, and one for the device, which holds
them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ...dsl.contract import abi
from ...dsl.contract.kernels import KernelTable, read_kernels
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import PackageError
from .device import CodeFile, Entry, ScratchSize
from .shared_library import SharedLibrary, scratch_size


@dataclass(frozen=True)
class HostHalf:
    """The half of an entry for the host.

    Attributes:
        entry: the entry.
        reports: the table of its reports.
        kernels: the table of the kernels that it launches.
        scratch: how many bytes of the device a stage of a call needs for itself; None where none does.
        code: that for the device.
        keep: what has to live as long as the entry is called.
    """

    entry: Entry
    reports: bytes
    kernels: KernelTable
    scratch: ScratchSize | None
    code: bytes
    keep: object


def open_halves(files: Sequence[CodeFile]) -> HostHalf:
    """Opens the host's half, and reads the code for the device: the last of the files.

    Raises:
        OSError: the host's half cannot be loaded.
        PackageError: EK0625 they do not belong together.
    """
    library = SharedLibrary(files[0].path)
    kernels = read_kernels(ctypes.string_at(library.address(abi.KERNELS)))
    code = files[-1].read()
    if not kernels.fits(code):
        raise PackageError(
            "the code for the device is not what the code for the host was made with",
            code="EK0625",
            expected=kernels.stamp,
            got=str(files[-1].path),
            hint="build the package again, or empty the cache",
        )
    entry = abi.EntryFunction(library.address(abi.ENTRY))
    reports = ctypes.string_at(library.address(abi.REPORTS))
    return HostHalf(entry, reports, kernels, scratch_size(library), code, library)
