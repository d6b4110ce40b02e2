"""Names the shared libraries by which programs reach GPUs; a machine without them has none that can be used."""

from __future__ import annotations

import os
import sys
from typing import Final, NamedTuple

CUDA_LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
HIP_LIBRARY: Final = "amdhip64.dll" if sys.platform == "win32" else "libamdhip64.so"


class CollectiveLibrary(NamedTuple):
    """The library by which GPUs of one kind exchange memory: NCCL's functions, under the same names.

    Attributes:
        name: what it is called, in at most four letters.
        file: the shared library.
        module: the module of a wheel with the file in its folder `lib`; empty if there is none.
        advice: how that wheel is installed; None if there is none.
    """

    name: str
    file: str
    module: str = ""
    advice: str | None = None


NCCL: Final = CollectiveLibrary("NCCL", "libnccl.so.2", "nvidia.nccl", "pip install nvidia-nccl-cu13")
RCCL: Final = CollectiveLibrary("RCCL", "librccl.so.1")

_MAPS: Final = "/proc/self/maps"


def loaded_files(name: str) -> list[str]:
    """The files of a library that this process has loaded, whatever version their names end in; none where the system
    does not list them."""
    try:
        with open(_MAPS, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    places = [line.split(None, 5) for line in lines]
    files = {(place[3], place[4]): os.fsdecode(place[5]) for place in places if len(place) == 6}
    return sorted(path for path in files.values() if os.path.basename(path).startswith(name))


def library_to_load(name: str) -> str:
    """What to load for a library: the file that the process has, such as the one that PyTorch brings, else the name."""
    return next(iter(loaded_files(name)), name)
