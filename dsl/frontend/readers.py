"""Finds the frontend of a file by its suffix. A row here makes a language known everywhere."""

from __future__ import annotations

from pathlib import Path

from .base import Frontend
from .python.reader import PYTHON

FRONTENDS: dict[str, Frontend] = {".py": PYTHON}


def is_source(file: Path) -> bool:
    """Whether a frontend reads this file."""
    return file.suffix in FRONTENDS


def frontend_of(file: Path) -> Frontend:
    """The frontend that reads a file; the caller has checked `is_source`."""
    return FRONTENDS[file.suffix]


def sources_in(folder: Path) -> list[Path]:
    """The files of a folder that a frontend reads, hidden ones aside; those in folders below are not among them."""
    files = (file for suffix in FRONTENDS for file in folder.glob(f"*{suffix}"))
    return sorted(file for file in files if not file.name.startswith("."))
