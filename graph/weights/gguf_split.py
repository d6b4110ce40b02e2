"""Opens the parts of split GGUF files: `model-00001-of-00003.gguf` and the others of its folder.

The metadata of a part says its number, how many parts there are, and how many tensors all of them have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from .gguf_file import GGUFFile

PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"
MOST_PARTS = 10_000


def opened(paths: Sequence[str]) -> list[GGUFFile]:
    """The files of one model; of a split one, of which a single part is named, all parts.

    Raises:
        GraphError: EK0434, a file is malformed, or a part is missing.
    """
    files = [GGUFFile(path) for path in paths]
    if not files:
        return files
    count = _number(files[0], COUNT, MOST_PARTS) if COUNT in files[0].metadata else 1
    if count > 1 and len(files) == 1:
        files = _siblings(files[0], count)
    if len(files) != max(count, 1):
        files[0].fail(f"metadata '{COUNT}'", f"{len(files)}, as many as there are files", count)
    if count > 1:
        _check_parts(files)
    return files


def _siblings(file: GGUFFile, count: int) -> list[GGUFFile]:
    match = PART.search(file.path)
    if match is None or int(match[2]) != count:
        file.fail("path", f"a name that ends in -00001-of-{count:05}.gguf, as there are {count} parts", file.path)
    start = file.path[: match.start()]
    paths = [f"{start}-{number + 1:05}-of-{count:05}.gguf" for number in range(count)]
    for path in paths:
        if not os.path.exists(path):
            file.fail(f"metadata '{COUNT}'", f"a file {os.path.basename(path)} in its folder", "none")
    return [file if number + 1 == int(match[1]) else GGUFFile(path) for number, path in enumerate(paths)]


def _check_parts(files: list[GGUFFile]) -> None:
    for number, file in enumerate(files):
        for name, wanted in ((COUNT, len(files)), (NUMBER, number)):
            if _number(file, name, MOST_PARTS) != wanted:
                file.fail(f"metadata '{name}'", str(wanted), file.metadata.get(name))
    tensors = sum(len(file.entries) for file in files)
    if TENSORS in files[0].metadata and files[0].metadata[TENSORS] != tensors:
        files[0].fail(f"metadata '{TENSORS}'", f"{tensors}, as the parts have", files[0].metadata[TENSORS])


def _number(file: GGUFFile, name: str, most: int) -> int:
    value = file.metadata.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        file.fail(f"metadata '{name}'", f"a whole number up to {most}", value)
    return value
