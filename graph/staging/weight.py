"""Defines weights: tensors of a graph whose elements come when it is loaded.

A `Weight` is made outside any graph and joins the graph that is being built when it is first used there, as an operand
or by `Graph.add_weight`. One weight may stand in several graphs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ...dsl.diagnostics.errors import GraphError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import int_of, text_of
from ..driver.devices import Device, DeviceRef
from ..quantization.encodings import QuantizationEncoding, decoded_type, encoding_of
from ..types.dims import Dim, Shape
from ..types.tensor_type import TensorType, shown
from .active import ACTIVE
from .value import GraphIdentity, TensorValue

CODE = "EK0432"


class Weight(TensorValue):
    """A tensor that a model holds, by the name under which the registry of weights has it.

    Args:
        name: unique in a graph, such as "layers.0.attention.weight".
        dtype, shape, device: as of a tensor type; all sizes are known.
        quantization_encoding: of a quantised weight, which is uint8: its last axis is the bytes of whole blocks.
        align: a power of two of which its address has to be a multiple; other memory is copied when it is loaded.
        sharding_strategy: not supported: a graph runs on one device.

    Raises:
        GraphError: EK0432, a size is not known, or an argument is not supported.
    """

    __slots__ = ("_encoding", "align", "name")
    name: str
    align: int | None

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: Iterable[int | str | Dim],
        device: DeviceRef | Device | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        align: int | None = None,
        sharding_strategy: None = None,
    ) -> None:
        if sharding_strategy is not None:
            _refuse("a graph runs on one device, so that weights are not sharded", "sharding_strategy", "a strategy")
        self.name = text_of("name", name)
        self.align = None if align is None else int_of("align", align, CODE)
        if self.align is not None and (self.align < 1 or self.align & (self.align - 1)):
            _refuse("an alignment is a power of two", "align", align)
        type = TensorType(dtype, shape, device)
        check_weight_type(self.name, type)
        self._type = type
        self._encoding = None if quantization_encoding is None else _encoding(self.name, type, quantization_encoding)

    # A weight is a value of whichever graph is being built.

    @property
    def graph(self) -> GraphIdentity:  # type: ignore[override]  # elsewhere an attribute
        """The graph that is being built.

        Raises:
            GraphError: EK0401, there is none.
        """
        graph: GraphIdentity = self._graph()
        return graph

    @property
    def number(self) -> int:  # type: ignore[override]
        """Its number in the graph that is being built, which has it from now on."""
        number: int = self._graph().add_weight(self).number
        return number

    def _graph(self) -> Any:
        graphs = ACTIVE.get()
        if not graphs:
            raise GraphError(
                f"weight {self.name!r} is used, and no graph is being built here",
                code="EK0401",
                place=user_place(),
                got=self.name,
                hint="use it in Graph(..., forward=...) or under 'with Graph(...) as graph:'",
            )
        return graphs[-1]

    @property
    def quantization_encoding(self) -> QuantizationEncoding | None:
        """How its elements are encoded; None of plain ones."""
        return self._encoding

    @property
    def sharding_strategy(self) -> None:
        """How it is spread over devices; in this version it is not."""
        return None

    @property
    def shard_idx(self) -> int | None:
        """Which shard of a weight it is; None of a whole one."""
        return None

    @property
    def original_dtype_and_shape(self) -> tuple[DType, Shape]:
        """dtype and shape of the elements; of a quantised weight, of those that it is decoded to."""
        if self._encoding is None:
            return self.dtype, self.shape
        dtype, shape = decoded_type(self._encoding, tuple(int(dim) for dim in self.shape))
        return dtype, Shape(shape)

    def shard(self, devices: Iterable[DeviceRef]) -> list[Weight]:
        """
        Raises:
            GraphError: EK0432, always: it has no sharding strategy.
        """
        _refuse(f"weight {self.name!r} has no sharding strategy", "sharding_strategy", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Weight, (self.name, self.dtype, self.shape, self.device, self._encoding, self.align)

    def __repr__(self) -> str:
        return f"Weight({self.name!r}, {self.dtype}, {shown(self.shape)}, {self.device})"


def _encoding(name: str, type: TensorType, value: object) -> QuantizationEncoding:
    encoding = encoding_of("quantization_encoding", value, CODE)
    if not encoding.is_gguf:
        return encoding
    size = encoding.block_size
    if type.dtype is not DType.uint8 or not len(type.shape) or int(type.shape[-1]) % size:
        text = f"weight {name!r} of encoding {encoding.name} is {type.dtype} {shown(type.shape)}, and has to be uint8"
        _refuse(f"{text} with a last axis of a multiple of {size} bytes", "shape", shown(type.shape))
    return encoding


def check_weight_type(name: str, type: TensorType) -> None:
    """Refuses a type whose sizes depend on a call: a weight is loaded before.

    Raises:
        GraphError: EK0432.
    """
    if not type.shape.is_static:
        _refuse(f"weight {name!r} has the shape {shown(type.shape)}, and its sizes have to be known", "shape", None)


def _refuse(message: str, argument: str, got: int | str | None) -> NoReturn:
    raise GraphError(message, code=CODE, place=user_place(), argument=argument, got=shown_value(got))
