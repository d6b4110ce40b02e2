"""Registers models with XLA: a handler for each, which the programs of JAX call by its name.

A name is made of all that the code depends on, so a program that JAX has exported finds its handler in another process
that has registered it. XLA forgets no handler: handlers, and the models that they call, stay for the life of the
process. Where no handler can be made, a call goes back to Python, with the same results.

See also `jax` (which model, and batching).
"""

from __future__ import annotations

import collections
import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from ...dsl.contract.checks import parse_checks
from ...dsl.contract.foreign_doors import handler_words
from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.environment.cache import content_key
from ...dsl.signature.dims import evaluate
from ...dsl.signature.parameters import identity
from ..calling.doors import DoorOwner, door_spec, entry_words
from ..driver.python_api import address_of
from ..engine.model import Model
from ..ir import ConstantTensor, GraphIR, Node
from ..loading.compile import chosen_checks
from .foreign_calls import own_door
from .jax_callee import Levels, Shape, batch_sizes
from .jax_sharding import call_attributes
from .late_interrupts import is_late, raise_later

_Explain = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_handlers: dict[str, Handler] = {}
_lock = fork_lock()
_failed: collections.deque[tuple[str, BaseException]] = collections.deque(maxlen=64)


class Handler:
    """What XLA calls for a model.

    Args:
        merges: whether the kernel is elementwise, so that further axes in front count as one with the first. Otherwise
            they are those of a batch, and the entry is called for one member after the other.

    Attributes:
        name: what programs call it; "" where there is no handler, and Python is called instead.
    """

    def __init__(self, model: Model, name: str, merges: bool) -> None:
        caller = model.first_caller
        self.model = model
        self.name = ""
        self.spec = door_spec(caller)
        self._owner = DoorOwner(caller)
        self._texts: dict[int, object] = {}  # by thread, which has one failure at a time
        self._explain = _Explain(self.explain)  # kept: native code has its address
        if self.spec is None:
            return
        words = entry_words(caller, self._owner)
        words["interrupt"] = address_of("PyErr_SetInterruptEx")
        words["explain"] = ctypes.cast(self._explain, ctypes.c_void_p).value or 0
        for position, (kind, number) in enumerate(self.spec.pointers):
            if kind == "constant":
                words[f"constant{number}"] = caller.memory.pointers[position] or 0
        library = own_door("xla", self.spec, merges, handler_words(self.spec), words)
        if library is not None:
            self.name = name
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(library.address("ek_door")), platform="cpu")
            jax.ffi.register_ffi_target_as_batch_partitionable(name)

    def explain(self, context: int, status: int) -> int:
        """The address of the text of a failure, which XLA copies at once; 1 where an exception is raised later."""
        error = self._owner.error(context, status)
        if is_late() or (not isinstance(error, EinkornError) and raise_later(error)):
            return 1
        text = str(error)
        _failed.append((text, error))
        kept = self._texts[threading.get_ident()] = ctypes.create_string_buffer(text.encode())
        return ctypes.addressof(kept)

    def sizes(self, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The size behind each name of the door, which may be symbolic."""
        known: dict[str, Any] = {}
        assert self.spec is not None
        for argument, shape in zip(self.spec.arguments, shapes, strict=True):
            for axis, size in zip(argument.axes, shape, strict=True):
                known.setdefault(str(axis), size)
        return known

    def output_shapes(self, shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """The shapes of the model's outputs for these of its inputs."""
        if self.spec is not None:
            known = self.sizes(shapes)
            return [tuple(evaluate(axis, known) for axis in output.axes) for output in self.spec.outputs]
        symbols: dict[str, Any] = {}
        for type, shape in zip(self.model.ir.inputs, shapes, strict=True):
            for dim, size in zip(type.shape, shape, strict=True):
                symbols.update(dict.fromkeys(dim.parameters, size))
        return [tuple(dim.evaluate(symbols) for dim in type.shape) for type in self.model.ir.output_types]

    def call(
        self,
        args: Sequence[Any],
        shapes: Sequence[Shape],
        changed: Sequence[int] = (),
        levels: Levels = (),
        split: int = 0,
        ends: bool = False,
    ) -> tuple[Any, ...]:
        """One call in a trace: outputs of these shapes, then the new values of the inputs that are changed.

        Args:
            args: the operands, with the axes of the batch in front.
            shapes: of the outputs, for one member.
            changed: the positions of the inputs that are changed; they have all axes of the batch.
            levels: of the batch.
            split: how many axes XLA may split the call along.
            ends: whether further axes follow those already, in all operands that have them and in the results.
        """
        batch = batch_sizes([value.shape for value in args], levels)
        batched = [any(level[k] for level in levels) for k, _ in enumerate(args)]
        operands = [_whole(value, [level[k] for level in levels], batch) for k, value in enumerate(args)]
        if not self.name:
            return self._by_callback(operands, shapes, changed, batch)
        if not split or changed or ends:
            return self._bound(operands, shapes, changed, batch, split if ends else 0)
        if not levels:  # XLA splits along axes that others follow
            operands = [jax.numpy.expand_dims(value, -1) if value.ndim else value for value in operands]
            results = self._bound(operands, [(*shape, 1) for shape in shapes], (), (), split)
            return tuple(jax.numpy.squeeze(result, -1) for result in results)
        if all(value.ndim == split for value, has in zip(operands, batched, strict=True) if has):
            return self._bound(operands, shapes, changed, batch, 0)
        alone = max((value.ndim for value, has in zip(operands, batched, strict=True) if not has), default=0)
        ones = tuple(range(max(0, alone + 1 - split)))  # it replicates operands with fewer axes than it splits along
        operands = [
            jax.numpy.expand_dims(value, ones) if has else value for value, has in zip(operands, batched, strict=True)
        ]
        results = self._bound(operands, shapes, (), ((1,) * len(ones)) + batch, split + len(ones))
        return tuple(jax.numpy.squeeze(result, ones) for result in results)

    def _results(
        self, args: Sequence[Any], shapes: Sequence[Shape], changed: Sequence[int], batch: Shape
    ) -> list[tuple[Shape, Any]]:
        types = self.model.ir.output_types
        results = [((*batch, *shape), type.dtype.to_numpy()) for shape, type in zip(shapes, types, strict=True)]
        return results + [(args[number].shape, args[number].dtype) for number in changed]

    def _bound(
        self, args: Sequence[object], shapes: Sequence[Shape], changed: Sequence[int], batch: Shape, split: int
    ) -> tuple[Any, ...]:
        results = tuple(self._results(args, shapes, changed, batch))
        aliases = tuple((number, len(shapes) + place) for place, number in enumerate(changed))
        return tuple(handler_p.bind(*args, name=self.name, results=results, aliases=aliases, split=split))

    def _by_callback(
        self, args: Sequence[object], shapes: Sequence[Shape], changed: Sequence[int], batch: Shape
    ) -> tuple[Any, ...]:
        results = self._results(args, shapes, changed, batch)
        made = [jax.ShapeDtypeStruct(*each) for each in results]
        call = self._in_python(changed, batch, results)
        return tuple(jax.pure_callback(call, tuple(made), *args, vmap_method="sequential"))

    def _in_python(self, changed: Sequence[int], batch: Shape, results: Sequence[tuple[Shape, Any]]) -> Any:
        def one(args: Sequence[object]) -> tuple[Any, ...]:
            arrays = [np.array(value, copy=True if number in changed else None) for number, value in enumerate(args)]
            try:
                results = self.model.execute(*arrays)
            except Exception as error:
                _failed.append((str(error), error))
                raise
            return (*(result.to_numpy() for result in results), *(arrays[number] for number in changed))

        ranks = [type.rank for type in self.model.ir.inputs]

        def call(*args: Any) -> tuple[Any, ...]:
            if not batch:
                return one(args)
            many = [np.ndim(value) > rank for value, rank in zip(args, ranks, strict=True)]
            places = np.ndindex(*batch)
            members = [
                one([np.asarray(v)[place] if has else v for v, has in zip(args, many, strict=True)]) for place in places
            ]
            if not members:
                return tuple(np.zeros(shape, dtype) for shape, dtype in results)
            return tuple(np.stack(each).reshape(*batch, *each[0].shape) for each in zip(*members, strict=True))

        return call


def _whole(value: Any, has: Sequence[bool], batch: Shape) -> Any:
    """An operand with all axes of a batch, or with none."""
    if all(has) or not any(has):
        return value
    value = jax.numpy.expand_dims(value, [k for k, there in enumerate(has) if not there])
    return jax.numpy.broadcast_to(value, (*batch, *value.shape[len(batch) :]))


# *** the primitive ***

handler_p = Primitive("einkorn_handler")  # a call of a handler; it is in the lowering of other primitives alone
handler_p.multiple_results = True


def _abstract(*avals: Any, results: Sequence[tuple[Any, Any]], **_: Any) -> list[Any]:
    if not avals:
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in results]
    mesh = avals[0].sharding.mesh
    return [
        avals[0].update(
            shape=shape,
            dtype=dtype,
            weak_type=False,
            sharding=NamedSharding(mesh, PartitionSpec(*(None for _ in shape))),
        )
        for shape, dtype in results
    ]


def _lowered(ctx: Any, *values: object, name: str, aliases: Sequence[tuple[int, int]], split: int, **_: object) -> Any:
    given, made = ([aval.shape for aval in avals] for avals in (ctx.avals_in, ctx.avals_out))
    attributes = call_attributes(given, made, split) if split else None
    rule = jax.ffi.ffi_lowering(name, operand_output_aliases=dict(aliases), extra_attributes=attributes)
    return rule(ctx, *values)


handler_p.def_abstract_eval(_abstract)
mlir.register_lowering(handler_p, _lowered)


# *** names ***


def handler_of(model: Model, checks: str | None = None, *, merges: bool = False) -> Handler:
    """The handler of a model, registered on first use; see `Handler`."""
    entry: Handler | None = model.__dict__.get("_xla")
    if entry is None:
        with _lock:
            name = _name(model.ir, checks)
            entry = _handlers.get(name)
            if entry is None:
                entry = _handlers[name] = Handler(model, name, merges)
            model.__dict__["_xla"] = entry
    return entry


def _name(ir: GraphIR, checks: str | None) -> str:
    """What stands for a graph in every process, as long as its kernels are the same."""
    nodes: list[Any] = []
    for node in ir.nodes:
        if isinstance(node, Node):
            parameters = [[name, *identity(value)] for name, value in node.parameters]
            nodes.append([node.kernel.digest, parameters, list(node.operands), [str(t) for t in node.out_types]])
        else:
            nodes.append(node.array.tobytes().hex() if isinstance(node, ConstantTensor) else repr(node))
    inputs = [str(type) for type in ir.inputs]
    key = content_key(
        "xla", inputs, nodes, list(ir.outputs), str(chosen_checks(parse_checks(checks) if checks else None))
    )
    return f"einkorn.{ir.name}.{key[:24]}"


def failed(error: BaseException) -> BaseException | None:
    """The error of Einkorn inside an error of JAX's, if there is one."""
    text = str(error)
    return next((known for said, known in reversed(_failed) if said in text), None)
