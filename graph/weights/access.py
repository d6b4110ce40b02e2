"""Names the weights of files as programs name them, `weights.layers[0].norm.weight`, and makes `Weight`s of them.

See also `safetensors_file` and `gguf_file` (how files are read), `load` (which files make a model).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, did_you_mean
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import dtype_of, list_of, path_of, wrong
from ..driver.arrays import rounded
from ..driver.buffer import Buffer
from ..driver.devices import Device, DeviceRef
from ..driver.dlpack import DLPackArray
from ..quantization.encodings import QuantizationEncoding, encoding_of
from ..staging.weight import Weight
from ..types.dims import Dim, Shape
from ..types.tensor_type import shown
from .gguf_split import opened
from .safetensors_file import CODE, SafetensorFile

DimLike = int | str | Dim
NO_WEIGHT = "EK0435"


class WeightError(GraphError, KeyError):
    """A weight is requested that no file has."""


@dataclass(frozen=True)
class WeightRow:
    """A weight of a file.

    Attributes:
        name: its whole name.
        format: its dtype or encoding, as the file names it.
        shape: that of its elements.
        bytes: how many it takes.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    bytes: int


class Weights(Protocol):
    """What files of weights answer: names by attributes and indices, and the weights of these names."""

    @property
    def name(self) -> str:
        """The name that attributes and indices have made so far."""
        ...

    @property
    def allocated_weights(self) -> dict[str, DLPackArray]:
        """The memory of all weights that `allocate` was called for, by name: a registry for `InferenceSession.load`."""
        ...

    def __getattr__(self, attr: str) -> Self: ...

    def __getitem__(self, index: int | str) -> Self: ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the files."""
        ...

    def rows(self) -> list[WeightRow]:
        """What is known of each weight below this name."""
        ...

    def exists(self) -> bool:
        """Whether there is a weight of just this name."""
        ...

    def items(self) -> Iterator[tuple[str, Self]]:
        """All weights below this name, with what stands behind it in their names."""
        ...

    def data(self) -> WeightData:
        """The weight of this name."""
        ...

    def allocate(
        self,
        dtype: DType | None = None,
        shape: Iterable[DimLike] | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: DeviceRef | Device | None = None,
    ) -> Weight:
        """A `Weight` for graphs."""
        ...


@dataclass(frozen=True, eq=False)
class WeightData:
    """A weight's memory with what is known of it; of a quantised one dtype and shape are those of its bytes."""

    data: DLPackArray
    name: str
    dtype: DType
    shape: Shape
    quantization_encoding: QuantizationEncoding | None = None

    @classmethod
    def from_numpy(cls, arr: np.ndarray[Any, Any], name: str) -> WeightData:
        """A weight over an array."""
        buffer = Buffer.from_numpy(arr)
        return cls(buffer, name, buffer.dtype, Shape(buffer.shape))

    def astype(self, dtype: DType) -> WeightData:
        """The same numbers in another dtype, each rounded once; the weight itself where it has this dtype."""
        if dtype_of("dtype", dtype) is self.dtype:
            return self
        if self.quantization_encoding is not None:
            raise GraphError(
                f"weight '{self.name}' is quantised, and its bytes are not numbers of dtype {dtype}",
                code=NO_WEIGHT,
                place=user_place(),
                argument="dtype",
                expected=str(self.dtype),
                got=str(dtype),
                hint=f"ops.dequantize({self.quantization_encoding.name!r}, weight) in a graph decodes it",
            )
        with np.errstate(all="ignore"):
            return WeightData.from_numpy(rounded(_buffer(self.data).to_numpy(), dtype), self.name)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return _buffer(self.data).__array__(dtype, copy)

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.data.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


def _buffer(data: DLPackArray) -> Buffer:
    return data if isinstance(data, Buffer) else Buffer.from_dlpack(data)


class File(Protocol):
    """What a reader of files answers."""

    path: str

    @property
    def entries(self) -> Mapping[str, Any]: ...

    def buffer(self, name: str) -> Buffer: ...

    def encoding(self, name: str) -> QuantizationEncoding | None: ...


class FileWeights:
    """The weights of files, over the mapped files.

    Attributes and indices make names: `weights.layers[0].norm.weight` is "layers.0.norm.weight". A part of a name that
    is a method here, as "data", is written as an index: `weights["data"]`.
    """

    _files: Mapping[str, File]  # by the name of a weight
    _metadata: Mapping[str, object]
    _prefix: str
    _allocated: dict[str, DLPackArray]

    def _at(self, name: str) -> Self:
        result = copy.copy(self)
        result._prefix = name
        return result

    def __getattr__(self, attr: str) -> Self:
        if attr.startswith("__") and attr.endswith("__"):
            raise AttributeError(attr)  # copy and pickle look for optional methods
        return self[attr]

    def __getitem__(self, index: int | str) -> Self:
        if isinstance(index, bool) or not isinstance(index, int | str):
            wrong("index", index, "a number or a name", code=NO_WEIGHT)
        return self._at(f"{self._prefix}.{index}" if self._prefix else str(index))

    @property
    def name(self) -> str:
        """The name that attributes and indices have made so far."""
        return self._prefix

    @property
    def allocated_weights(self) -> dict[str, DLPackArray]:
        """The memory of all weights that `allocate` was called for, by name: a registry for `InferenceSession.load`."""
        return dict(self._allocated)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the files; of a split GGUF file that of its first part."""
        return self._metadata

    def rows(self) -> list[WeightRow]:
        """What is known of each weight below this name, also of those whose format is not decoded here."""
        results = []
        for _, weight in self.items():
            entry = self._files[weight.name].entries[weight.name]
            results.append(WeightRow(weight.name, entry.kind, tuple(entry.shape), entry.stop - entry.start))
        return results

    def exists(self) -> bool:
        """Whether there is a weight of just this name."""
        return self._prefix in self._files

    def items(self) -> Iterator[tuple[str, Self]]:
        """All weights below this name, in the order of the files, with what stands behind it in their names."""
        below = f"{self._prefix}." if self._prefix else ""
        for name in self._files:
            if name.startswith(below) or name == self._prefix:
                yield name[len(below) :], self._at(name)

    def data(self) -> WeightData:
        """The weight of this name; its memory is the file's, and cannot be written.

        Raises:
            WeightError: EK0435 (a KeyError, too), no file has it.
        """
        self._check_known()
        file = self._files[self._prefix]
        buffer = file.buffer(self._prefix)
        return WeightData(buffer, self._prefix, buffer.dtype, Shape(buffer.shape), file.encoding(self._prefix))

    def allocate(
        self,
        dtype: DType | None = None,
        shape: Iterable[DimLike] | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: DeviceRef | Device | None = None,
    ) -> Weight:
        """A `Weight` of this name for graphs; `allocated_weights` has its memory from now on.

        Args:
            dtype: of the weight; where the file has another, its numbers are converted, which copies them.
            shape: what the shape is expected to be; of a quantised weight that of its bytes, or of its elements.
            quantization_encoding: what the encoding is expected to be.
            device: where the weight lies in graphs; the host when left out.

        Raises:
            WeightError: EK0435 (a KeyError, too), no file has it.
            GraphError: EK0435, it has another shape or encoding.
        """
        data = self.data()
        wanted = data.dtype if dtype is None else dtype_of("dtype", dtype)
        encoding = data.quantization_encoding
        if quantization_encoding is not None:
            wished = encoding_of("quantization_encoding", quantization_encoding, "EK0432")
            self._check_encoding(wished, encoding)
        stored = data.astype(wanted)
        weight = Weight(self._prefix, wanted, data.shape, device, encoding)
        if shape is not None and Shape(shape) not in (data.shape, weight.original_dtype_and_shape[1]):
            self._refuse_shape(Shape(shape), data.shape)
        return self._given_out(weight, _buffer(stored.data))

    def allocate_as_bytes(self, dtype: DType | None = None) -> Weight:
        """A `Weight` of this name that has the bytes of the elements as its last axis, in uint8.

        Args:
            dtype: what the elements are expected to be.

        Raises:
            WeightError: EK0435 (a KeyError, too), no file has it.
            GraphError: EK0435, it has another dtype.
        """
        data = self.data()
        if dtype is not None and dtype_of("dtype", dtype) is not data.dtype:
            raise GraphError(
                f"weight '{self._prefix}' holds {data.dtype}, not {dtype}",
                code=NO_WEIGHT,
                place=user_place(),
                argument="dtype",
                expected=str(dtype),
                got=str(data.dtype),
            )
        sizes = [int(size) for size in data.shape] or [1]
        sizes[-1] = data.dtype.bytes_for(sizes[-1])
        buffer = _buffer(data.data).view(DType.uint8, sizes)
        return self._given_out(Weight(self._prefix, DType.uint8, sizes), buffer)

    def _given_out(self, weight: Weight, buffer: Buffer) -> Weight:
        device = weight.device
        self._allocated[self._prefix] = buffer.to(device.to_device())
        return weight

    def _check_known(self) -> None:
        if self._prefix not in self._files:
            below = sum(name.startswith(f"{self._prefix}.") for name in self._files)
            raise WeightError(
                f"no file has a weight of the name '{self._prefix}'",
                code=NO_WEIGHT,
                place=user_place(),
                got=self._prefix,
                notes=[f"{below} weights have names that begin so"] if below else [],
                hint=None if below else did_you_mean(self._prefix, self._files),
            )

    def _check_encoding(self, wanted: QuantizationEncoding, there: QuantizationEncoding | None) -> None:
        if wanted is there:
            return
        names = [str(getattr(each, "name", each)) for each in (wanted, there)]
        raise GraphError(
            f"weight '{self._prefix}' has the encoding {names[1]}, not {names[0]}",
            code=NO_WEIGHT,
            place=user_place(),
            argument="quantization_encoding",
            expected=names[0],
            got=names[1],
        )

    def _refuse_shape(self, wanted: Shape, there: Shape) -> None:
        raise GraphError(
            f"weight '{self._prefix}' has the shape {shown(there)}, not {shown(wanted)}",
            code=NO_WEIGHT,
            place=user_place(),
            argument="shape",
            expected=shown(wanted),
            got=shown(there),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._prefix!r}, {len(list(self.items()))} weights)"


class SafetensorWeights(FileWeights):
    """The weights of safetensors files, over the mapped files; see `FileWeights`.

    Args:
        filepaths: the files of one model.
        tensors: the names that are to be seen; all when left out.
        tensors_to_file_idx: in which of the files each name is looked for, where several have it.
        prefix: the name to begin with.
        allocated: where `allocate` notes what it gave out; a dict of its own when left out.

    Raises:
        GraphError: EK0434, a file is malformed, or two files have a weight of one name.
    """

    def __init__(
        self,
        filepaths: Sequence[str | os.PathLike[str]],
        *,
        tensors: Iterable[str] | None = None,
        tensors_to_file_idx: Mapping[str, int] | None = None,
        prefix: str = "",
        allocated: dict[str, DLPackArray] | None = None,
    ) -> None:
        paths = paths_of("filepaths", filepaths)
        files = [SafetensorFile(path) for path in paths]
        self._files = _found(files, tensors, tensors_to_file_idx or {})
        self._metadata = {name: text for file in reversed(files) for name, text in file.metadata.items()}
        self._prefix = prefix
        self._allocated = {} if allocated is None else allocated


class GGUFWeights(FileWeights):
    """The weights of GGUF files, over the mapped files; see `FileWeights`.

    Args:
        source: a file, or the files of a split one.
        tensors: the names that are to be seen; all when left out.
        prefix: the name to begin with.
        allocated: where `allocate` notes what it gave out; a dict of its own when left out.

    Raises:
        GraphError: EK0434, a file is malformed, a part of a split one is missing, or two have a weight of one name.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        tensors: Iterable[str] | None = None,
        prefix: str = "",
        allocated: dict[str, DLPackArray] | None = None,
    ) -> None:
        paths = paths_of("source", [source] if isinstance(source, str) else source)
        files = opened(paths)
        self._files = _found(files, tensors, {})
        self._metadata = files[0].metadata if files else {}
        self._prefix = prefix
        self._allocated = {} if allocated is None else allocated


def _found(files: Sequence[File], tensors: Iterable[str] | None, chosen: Mapping[str, int]) -> dict[str, File]:
    """Which file has the weight of a name."""
    wanted = None if tensors is None else set(list_of("tensors", sorted(tensors), "names"))
    results: dict[str, File] = {}
    for number, file in enumerate(files):
        for name in file.entries:
            if (wanted is not None and name not in wanted) or chosen.get(name, number) != number:
                continue
            if name in results:
                raise GraphError(
                    f"two files have a weight of the name '{name}': '{results[name].path}' and '{file.path}'",
                    code=CODE,
                    place=user_place(),
                    argument="filepaths",
                    got=name,
                )
            results[name] = file
    return results


def paths_of(argument: str, paths: object) -> list[str]:
    """A list of paths, from one of them or several."""
    listed = list_of(argument, [paths] if isinstance(paths, os.PathLike) else paths, "paths", CODE)
    return [path_of(f"{argument}[{position}]", path, CODE) for position, path in enumerate(listed)]
