"""Registers models with XLA: a handler for each, which the programs of JAX call by its name.

A name is made of all that the code depends on, so a program that JAX has exported finds its handler in another process
that has registered it. XLA forgets no handler: handlers, and the models that they call, stay for the life of the
process. Where no handler can be made, a call goes back to Python, with the same results.

Input: models, arrays that are traced. Output: arrays that are traced. Non-goals: which model, and batching (see `jax`).
"""

from __future__ import annotations

import collections
import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ...dsl.contract.checks import parse_checks
from ...dsl.contract.foreign_doors import handler_words
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.environment.cache import content_key
from ...dsl.signature.dims import evaluate
from ...dsl.signature.parameters import identity
from ..engine.compile import chosen_checks
from ..engine.doors import DoorOwner, door_spec, entry_words
from ..engine.model import Model
from ..ir import Constant, GraphIR, Node
from .foreign_calls import own_door

_Explain = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_handlers: dict[str, Handler] = {}
_lock = fork_lock()
_failed: collections.deque[tuple[str, BaseException]] = collections.deque(maxlen=64)


class Handler:
    """What XLA calls for a model.

    Attributes:
        name: what programs call it; "" where there is no handler, and Python is called instead.
    """

    def __init__(self, model: Model, name: str) -> None:
        caller = model._call
        self.model = model
        self.name = ""
        self.spec = door_spec(caller)
        self._owner = DoorOwner(caller)
        self._texts: dict[int, Any] = {}  # by thread, which has one failure at a time
        self._explain = _Explain(self.explain)  # kept: native code has its address
        if self.spec is None:
            return
        words = entry_words(caller, self._owner)
        words["explain"] = ctypes.cast(self._explain, ctypes.c_void_p).value or 0
        for position, (kind, number) in enumerate(self.spec.pointers):
            if kind == "constant":
                words[f"constant{number}"] = caller.pointers[position] or 0
        library = own_door("xla", self.spec, None, handler_words(self.spec), words)
        if library is not None:
            self.name = name
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(library.address("ek_door")), platform="cpu")

    def explain(self, context: int, status: int) -> int:
        """The address of the text of a failure; XLA copies it at once."""
        error = self._owner.error(context, status)
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
        for type, shape in zip(self.model._ir.inputs, shapes, strict=True):
            for dim, size in zip(type.shape, shape, strict=True):
                symbols.update(dict.fromkeys(dim.parameters, size))
        return [tuple(dim.evaluate(symbols) for dim in type.shape) for type in self.model._ir.output_types]

    def call(self, args: Sequence[Any], shapes: Sequence[Sequence[Any]], changed: Sequence[int]) -> tuple[Any, ...]:
        """One call in a trace: outputs of these shapes, then the new values of the inputs that are changed."""
        results = [
            jax.ShapeDtypeStruct(shape, type.dtype.to_numpy())
            for shape, type in zip(shapes, self.model._ir.output_types, strict=True)
        ]
        aliases = {number: len(results) + place for place, number in enumerate(changed)}
        results += [jax.ShapeDtypeStruct(args[number].shape, args[number].dtype) for number in changed]
        if not self.name:
            found = jax.pure_callback(self._in_python(changed), tuple(results), *args, vmap_method="sequential")
            return tuple(found)
        run = jax.ffi.ffi_call(self.name, results, vmap_method="sequential", input_output_aliases=aliases)
        return tuple(run(*args))

    def _in_python(self, changed: Sequence[int]) -> Any:
        def call(*args: Any) -> tuple[Any, ...]:
            arrays = [np.array(value, copy=True if number in changed else None) for number, value in enumerate(args)]
            try:
                results = self.model.execute(*arrays)
            except Exception as error:
                _failed.append((str(error), error))
                raise
            return (*(result.to_numpy() for result in results), *(arrays[number] for number in changed))

        return call


# *** names ***


def handler_of(model: Model, checks: str | None = None) -> Handler:
    """The handler of a model, registered when first asked for."""
    found: Handler | None = model.__dict__.get("_xla")
    if found is None:
        with _lock:
            name = _name(model._ir, checks)
            found = _handlers.get(name)
            if found is None:
                found = _handlers[name] = Handler(model, name)
            model.__dict__["_xla"] = found
    return found


def _name(ir: GraphIR, checks: str | None) -> str:
    """What stands for a graph in every process, as long as its kernels are the same."""
    nodes: list[Any] = []
    for node in ir.nodes:
        if isinstance(node, Node):
            parameters = [[name, *identity(value)] for name, value in node.parameters]
            nodes.append([node.kernel.digest, parameters, list(node.operands), [str(t) for t in node.out_types]])
        else:
            nodes.append(node.array.tobytes().hex() if isinstance(node, Constant) else repr(node))
    inputs = [str(type) for type in ir.inputs]
    key = content_key(
        "xla", inputs, nodes, list(ir.outputs), str(chosen_checks(parse_checks(checks) if checks else None))
    )
    return f"einkorn.{ir.name}.{key[:24]}"


def failed(error: BaseException) -> BaseException | None:
    """The error of ours that an error of JAX's tells of, if it does."""
    text = str(error)
    return next((known for said, known in reversed(_failed) if said in text), None)
