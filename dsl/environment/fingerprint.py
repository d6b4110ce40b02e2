"""Identifies what compiled code depends on next to its program: our own text, and the versions of the tools."""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

from ..contract import abi
from ..diagnostics.installation import ROOT
from ..diagnostics.shield import raise_if_of_handler

FOLDERS = ("compiler", "dsl", "graph", "stdlib")
TOOLS = ("llvmlite", "mlir", "torch_mlir")
_STARTED = time.time_ns()


@functools.cache
def fingerprint() -> str:
    """Differs whenever our own files or the tools differ.

    Of a process that may run the text of a file from before an edit, it is of that process alone: other processes
    would take what it keeps for results of the text after the edit.
    """
    stamps = _stamps(ROOT.resolve())
    now = time.time_ns()
    edited = any(_STARTED < changed <= now for _, _, changed in stamps)
    alone = [f"process {os.getpid()} of {_STARTED}"] if edited else []
    return "\n".join([f"abi {abi.ABI_VERSION}", *_tool_versions(), *(f"{n} {s} {c}" for n, s, c in stamps), *alone])


def _tool_versions() -> list[str]:
    """`llvmlite-0.50.0` and its kind, as folders next to installed packages are called: reading metadata is slow."""
    versions = []
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError as error:
            raise_if_of_handler(error)
            continue
        versions += [name for name in names if name.endswith(".dist-info") and name.split("-")[0] in TOOLS]
    return sorted(versions)


def _stamps(root: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of each of our files: a changed compiler must not find code of the one before."""
    stamps = []
    pending = [str(root / folder) for folder in FOLDERS]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    pending.append(entry.path)
                elif entry.name.endswith(".py"):
                    stat = entry.stat()
                    stamps.append((entry.path[len(str(root)) :], stat.st_size, stat.st_mtime_ns))
    return sorted(stamps)
