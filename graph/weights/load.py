"""Loads the weights of a model: one file, the parts of a split one, or the files that an index names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

from ...dsl.diagnostics.errors import GraphError, brief
from ...dsl.diagnostics.json_reading import Misread, field, of_fields, read_json, text
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import passes_signals, raise_if_of_handler
from .access import GGUFWeights, SafetensorWeights, Weights, paths_of
from .safetensors_file import CODE

INDEX = ".safetensors.index.json"
LONGEST_INDEX = 100_000_000  # bytes


class WeightsFormat(Enum):
    """The formats of files of weights."""

    gguf = "gguf"
    safetensors = "safetensors"


def weights_format(weight_paths: Sequence[str | os.PathLike[str]]) -> WeightsFormat:
    """The format of files, by the ends of their names; an index of safetensors files counts as one of them.

    Raises:
        GraphError: EK0434, there are none, they differ, or this is not a format of weights.
    """
    paths = paths_of("weight_paths", weight_paths)
    ends = list(dict.fromkeys(".safetensors" if p.endswith(INDEX) else os.path.splitext(p)[1] for p in paths))
    if len(ends) == 1 and ends[0][1:] in WeightsFormat.__members__:
        return WeightsFormat[ends[0][1:]]
    what = "there are no paths" if not ends else f"files end in {' and in '.join(map(repr, ends))}"
    raise GraphError(
        f"no one format of weights: {what}",
        code=CODE,
        place=user_place(),
        argument="weight_paths",
        expected=".safetensors or .gguf",
        got=ends,
    )


@passes_signals
def load_weights(paths: Sequence[str | os.PathLike[str]]) -> Weights:
    """The weights of the files of one model; the ends of their names determine the format.

    One part of a split GGUF file stands for all of them, an index (`model.safetensors.index.json`) for the files that
    it names.

    Raises:
        GraphError: EK0434, no files, of several formats, of a format that is not supported, or malformed ones.
    """
    format = weights_format(paths)
    listed = paths_of("paths", paths)
    if format is WeightsFormat.gguf:
        return GGUFWeights(listed)
    if any(path.endswith(INDEX) for path in listed):
        return _of_index(listed)
    return SafetensorWeights(listed)


def _of_index(paths: list[str]) -> SafetensorWeights:
    """The weights that an index names, each from the file that it says."""
    if len(paths) != 1:
        _fail(paths[0], "stands for all files of a model, and has to be the only path")
    (path,) = paths
    names = _weight_map(path)
    files = sorted(set(names.values()))
    for file in files:
        if file != os.path.basename(file) or not file.endswith(".safetensors"):
            _fail(path, f"names {brief(file, 120)}, which is not a .safetensors file of its folder")
    folder = os.path.dirname(path)
    places = {name: files.index(file) for name, file in names.items()}
    result = SafetensorWeights(
        [os.path.join(folder, file) for file in files], tensors=names, tensors_to_file_idx=places
    )
    missing = sorted(name for name in names if not result[name].exists())
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        where = names[missing[0]]
        _fail(path, f"says that {brief(where, 120)} has weight {brief(missing[0], 120)}{more}, which it lacks")
    return result


def _weight_map(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            data = file.read(LONGEST_INDEX + 1)
    except OSError as error:
        raise_if_of_handler(error)
        _fail(path, f"cannot be read: {error.strerror or error}")
    if len(data) > LONGEST_INDEX:
        _fail(path, f"is longer than {LONGEST_INDEX:,} bytes")
    try:
        fields = of_fields(read_json(data), ("weight_map",), ("metadata",))
        return dict(field(fields, "weight_map", _names))
    except Misread as wrong:
        _fail(path, f"is an index in which {wrong}")
    except ValueError as error:
        raise_if_of_handler(error)
        _fail(path, f"is an index that cannot be read: {brief(str(error), 200)}")


def _names(data: object) -> dict[str, str]:
    fields = of_fields(data, (), data if type(data) is dict else ())
    return {name: field(fields, name, text) for name in fields}


def _fail(path: str, what: str) -> NoReturn:
    raise GraphError(f"the file '{path}' {what}", code=CODE, place=user_place(), argument="paths", got=path)
