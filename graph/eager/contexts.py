"""Says when tensors get their values: at once, at the end of a function, or when they are needed.

`MODE` holds the context of this thread or task. `EagerRealizationContext` gives values at once,
`LazyRealizationContext` when they are needed; within a `GraphRealizationContext` values of a graph of its own, which
are staged by hand, become tensors.

See also `realize` (how values are computed).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import dtype_of
from ..driver.devices import CPU, Accelerator, Device, DeviceRef, accelerator_count, device_of
from ..engine.session import InferenceSession
from ..staging.graph import Graph
from ..staging.value import BufferValue, TensorValue
from .kinds import kind_of
from .nodes import TENSOR, Recorded, lent
from .programs import value_of
from .realize import realize


@dataclass(eq=False)
class RealizationState:
    """What a tensor without a value stands for, where it was staged by hand.

    Attributes:
        value: the value of a graph.
        ctx: the context that can compute it; None in a graph under construction elsewhere.
    """

    value: TensorValue | BufferValue
    ctx: RealizationContext | None


class RealizationContext:
    """Gives tensors their values.

    A tensor has a value or is associated with a context, which can compute it. Most users never need one.
    """

    lazy: bool

    def __init__(self) -> None:
        self.lazy = False  # of the object, where each op that is recorded finds it soonest
        self._graph: Graph | None = None
        self._sources: dict[str, object] = {}
        self._unrealized: dict[int, weakref.ref[Recorded]] = {}  # by identity: tensors compare element by element

    @property
    def graph(self) -> Graph:
        """The graph to which `create_unrealized` adds; one of its own for each context."""
        if self._graph is None:
            self._graph = Graph("eager")
        return self._graph

    def add_source(self, tensor: Recorded) -> RealizationState:
        """Makes a tensor a value of this context's graph, on which others may depend."""
        realize([tensor])
        kind = tensor._kind
        name = f"source{len(self._sources)}"
        self._sources[name] = lent(tensor)
        return RealizationState(self.graph.stage_weight(name, kind.type, 1, user_place()), self)

    def create_unrealized(self, value: TensorValue | BufferValue) -> Recorded:
        """A tensor of a value of this context's graph."""
        made: Recorded = TENSOR.get()(state=RealizationState(value, self))
        self._unrealized[id(made)] = weakref.ref(made)
        return made

    async def realize_all(self) -> list[Recorded]:
        """Gives all tensors that were created here, and are still referenced, their values."""
        return self._realize_all()

    def _realize_all(self) -> list[Recorded]:
        alive = [tensor for each in self._unrealized.values() if (tensor := each()) is not None]
        wanted = [tensor for tensor in alive if isinstance(tensor._pending, RealizationState)]
        if not wanted:
            return []
        graph = self.graph
        with graph:
            graph.output(*[tensor._pending.value for tensor in wanted])
        devices = list(dict.fromkeys(type.device.to_device() for type in graph.ir.types)) or [CPU()]
        values = InferenceSession(devices).load(graph, weights_registry=self._sources).execute()
        for tensor, buffer in zip(wanted, values, strict=True):
            tensor._kind, tensor._value, tensor._pending = kind_of(buffer), value_of(buffer), None
        self._graph, self._sources = None, {}
        self._unrealized.clear()
        return wanted


class EagerRealizationContext(RealizationContext):
    """Ops run as they are called."""


class LazyRealizationContext(RealizationContext):
    """Ops are recorded, and run when a value is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.lazy = True


class GraphRealizationContext(RealizationContext):
    """Tensors stand for values of a graph that is being built, and get no values here."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph

    def _realize_all(self) -> list[Recorded]:
        raise GraphError(
            f"tensors of graph {self.graph.name!r} get values when it runs",
            code="EK0840",
            place=user_place(),
            hint="load the graph with InferenceSession().load(graph), and call the model",
        )


MODE: ContextVar[RealizationContext] = ContextVar("einkorn_eager_context", default=EagerRealizationContext())  # noqa: B039


def current_realization_context() -> RealizationContext:
    """The context of this thread or task."""
    return MODE.get()


@contextmanager
def realization_context(ctx: RealizationContext) -> Iterator[RealizationContext]:
    """Makes a context the current one within a `with` block."""
    token = MODE.set(ctx)
    try:
        yield ctx
    finally:
        MODE.reset(token)


# *** defaults ***

_DTYPE: ContextVar[DType | None] = ContextVar("einkorn_eager_dtype", default=None)
_DEVICE: ContextVar[Device | None] = ContextVar("einkorn_eager_device", default=None)


def defaults(dtype: DType | None = None, device: Device | DeviceRef | None = None) -> tuple[DType, Device]:
    """The dtype and the device of a tensor that is made with these; where they are None the defaults.

    The default device is an accelerator where there is one, else the host; the default dtype is float32 on the host and
    bfloat16 on accelerators.
    """
    place = device_of(device) if device is not None else _DEVICE.get() or _first_device()
    chosen = dtype_of("dtype", dtype) if dtype is not None else _DTYPE.get()
    return chosen or DeviceRef.from_device(place).default_dtype, place


_first: list[Device] = []


def _first_device() -> Device:
    if not _first:
        _first.append(Accelerator() if accelerator_count() else CPU())
    return _first[0]


@contextmanager
def default_dtype(dtype: DType) -> Iterator[None]:
    """Makes a dtype that of tensors made within a `with` block without one."""
    token = _DTYPE.set(dtype_of("dtype", dtype))
    try:
        yield
    finally:
        _DTYPE.reset(token)


@contextmanager
def default_device(device: Device | DeviceRef) -> Iterator[None]:
    """Makes a device that of tensors made within a `with` block without one."""
    token = _DEVICE.set(device_of(device))
    try:
        yield
    finally:
        _DEVICE.reset(token)


@contextmanager
def defaults_like(like: Any) -> Iterator[None]:
    """Makes dtype and device of a tensor, or of a `TensorType`, those of tensors made within a `with` block."""
    with default_dtype(like.dtype), default_device(like.device):
        yield
