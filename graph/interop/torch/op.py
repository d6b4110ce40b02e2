"""Registers kernels with PyTorch: an `TorchOp` is a kernel that is an op of `torch.library`.

An op lives as long as the process. One name stands for one kernel: where a kernel is defined again under its name, in a
notebook for example, with an equal schema, the name stands for the new one from then on, and the old one gets another
name; with another schema the new one gets another name, since compiled programs hold the old schema.

See also `python_fallback` (how a call is made), `gradient` (gradients).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from ....dsl.diagnostics.errors import GraphError, plural
from ....dsl.diagnostics.places import user_place
from ....dsl.diagnostics.shield import raise_if_of_handler, shielded
from ....dsl.frontend.base import gradient_of
from ....dsl.package.library import LibraryKernel, LoadedKernel
from ....dsl.signature.parameters import bind_parameters
from ....dsl.signature.schema import OpSchema, Role
from ....dsl.signature.variadic import counted_inputs
from ..specialise import AnyKernel, prepared
from .arguments import explained
from .disk_caches import keep_apart
from .door import Doors
from .gradient import KernelRule, check_can_have_backward
from .names import NAMESPACE, define, is_taken, library_of, lock
from .number_ops import NumberOps, chosen, mixed_numbers
from .pending import write_pending
from .python_fallback import Arguments, PythonFallback
from .recording import active, check, record, refuse_tangents
from .repeated import repeated
from .schema import INTO, function_schema, has_symbols, into_schema
from .sharding import is_wanted, register_sharding
from .vmap import register_batching

_owners: dict[str, Registered] = {}  # by qualified name
_transformed = getattr(torch._C, "_are_functorch_transforms_active", bool)


class Registered:
    """A name of PyTorch's that stands for a kernel, and for another one after it is defined again.

    Attributes:
        overload: what PyTorch calls.
        fallback: the kernel that the name stands for now.
    """

    def __init__(self, name: str, schema: str, fallback: PythonFallback, into: bool) -> None:
        namespace, _, plain = name.partition("::")
        self.name, self.schema, self.fallback, self.into = name, schema, fallback, into
        self.overload = define(namespace, plain, schema, self._run, self._fake)
        self.has_autograd = self.is_split = False
        self.rule = KernelRule(lambda: self.fallback, run_kernel)
        library = library_of(namespace)
        derive: Any = None
        if into or fallback.schema.mutable:
            self.has_autograd = True
            write_pending(name, library)
            derive = check(name, library, self._refuse)
        elif not has_symbols(fallback.schema):
            self.has_autograd = True
            derive = record(name, library, self.rule)
        self.doors = Doors(name, fallback.schema, into, self._run, None if has_symbols(fallback.schema) else derive)
        self.doors.guarded = not self.has_autograd
        mixed = not into and mixed_numbers(fallback.schema)
        self.numbers = NumberOps(name, self.overload, fallback.schema) if mixed else None
        if not into:
            register_batching(name, library, lambda: self.fallback, self.overload)
        self.split()
        self.ops: weakref.WeakSet[TorchOp] = weakref.WeakSet()

    def replace(self, fallback: PythonFallback) -> None:
        """Lets the name stand for another kernel."""
        self.fallback = fallback
        self.doors.renew(fallback.schema)
        if self.numbers is not None:
            self.numbers.renew(fallback.schema)

    def record(self) -> None:
        """Lets autograd record the op: with the backward of its kernel, or as what has none."""
        if not self.has_autograd:
            self.has_autograd = True
            self.doors.close()  # they refuse tensors that require gradients
            self.doors.guarded = False
            record(self.name, library_of(self.name.partition("::")[0]), self.rule)

    def split(self) -> bool:
        """Lets distributed tensors be split for the op, in a program that has some. Whether that is new."""
        if self.is_split or self.into or not is_wanted():
            return False
        self.is_split = True
        register_sharding(self.overload, lambda: self.fallback)
        return True

    def add_backward(self) -> None:
        """Lets gradients flow through the op, where its kernel has a backward."""
        keep_apart(self.name, self.fallback.kernel)
        if self.fallback.has_backward and not self.fallback.schema.mutable and not self.into:
            self.record()

    def _arguments(self, values: Sequence[object], parameters: dict[str, Any]) -> Arguments:
        arguments = self.fallback.into_arguments if self.into else self.fallback.function_arguments
        return arguments(values, parameters)

    def _run(self, *values: object, **parameters: object) -> Any:
        call = self._arguments(values, parameters)
        self._check_gradients(call)
        result = self.fallback.run(call)
        if call.special is not None:
            (self.numbers or self.doors).open(call, values)
        return result

    def _fake(self, *values: object, **parameters: object) -> Any:
        call = self._arguments(values, parameters)
        self._check_gradients(call)
        return self.fallback.fake(call)

    def _refuse(self, values: Sequence[object]) -> None:
        """Refuses to lose a derivative by writing into memory."""
        call = self._arguments(values, {})
        names = [argument.name for argument in (*self.fallback.schema.inputs, *self.fallback.schema.outputs)]
        why = "none flows through memory that is written in place"
        refuse_tangents(self.fallback.schema.name, names, [*call.inputs, *(call.outputs or ())], why)
        self.fallback.check_gradients(call)

    def _check_gradients(self, call: Arguments) -> None:
        if not self.has_autograd:  # else autograd has done so, or records the op
            self.fallback.check_gradients(call)


class TorchOp:
    """A kernel as an op of PyTorch: called with tensors, and parameters by name.

    Attributes:
        kernel: the kernel.
        torch: the `OpOverload`, for `torch.library` and for programs that hold ops by name.
    """

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel = kernel
        self._fallback = PythonFallback(kernel)
        self._stand_for(register(self._fallback, into=False))
        self._into: Any = None
        self._state: Any = None  # of the kernel, when the op was last requested
        self._checks: Any = None
        kernel.watch_gradient(self._take_backward)
        self.__name__ = kernel.schema.name
        self.__doc__ = kernel.schema.doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            op = self.torch if self._is_plain else self._chosen(args, kwargs)
            return op(*args, **kwargs) if kwargs else op(*args)
        except RecursionError:
            raise
        except (RuntimeError, TypeError) as error:
            raise_if_of_handler(error)
            if isinstance(error, NotImplementedError) and self._registered.split():
                return self.torch(*args, **kwargs)
            schema = self._fallback.schema
            raise explained(schema, schema.inputs, error, args, kwargs) from None

    def _chosen(self, args: Sequence[object], parameters: Mapping[str, object]) -> Any:
        """The overload for a call, which autograd records where derivatives are computed."""
        if _transformed() or active or forward_ad._current_level >= 0:
            _let_record(self._registered.name)
        return self.torch if self._numbers is None else chosen(self._numbers, args, parameters)

    def traced(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the kernel itself in a program that Dynamo traces."""
        if "out" in kwargs:
            out = kwargs.pop("out")
            return self.call(args, kwargs, out)
        return self(*repeated(self.kernel, args, kwargs), **kwargs)

    def call(self, args: Sequence[object], parameters: Mapping[str, object], out: object = None) -> Any:
        """The op with arrays of NumPy among its arguments, and with its outputs given."""
        tensors = repeated(self.kernel, [_as_tensor(value) for value in args], parameters)
        values = _grouped(self._fallback.schema, tensors, parameters)
        if out is None:
            return self(*values, **parameters)
        outputs = list(out) if isinstance(out, list | tuple) else [out]
        schema = self._fallback.schema
        given, rest = iter(values), iter(outputs)
        count = len(schema.outputs)
        if len(outputs) != count:
            raise GraphError(
                f"op {schema.name!r} has {plural(count, 'output')}, and out= gives {len(outputs)}",
                code="EK0310",
                place=user_place(),
                op=schema.name,
                argument="out",
                expected=count,
                got=len(outputs),
            )
        tensors = [next(rest if a.role is Role.OUTPUT else given, _MISSING) for a in schema.tensors]
        ordered = [value for value in [*tensors, *given] if value is not _MISSING]
        _define_into(self)
        try:
            self._into(*ordered, **parameters)
        except RecursionError:
            raise
        except (RuntimeError, TypeError) as error:
            raise_if_of_handler(error)
            raise explained(schema, schema.tensors, error, ordered, parameters) from None
        return out

    def _stand_for(self, registered: Registered) -> None:
        self._registered, self.torch, self._numbers = registered, registered.overload, registered.numbers
        registered.ops.add(self)
        self._take_backward()
        self._is_plain = self._numbers is None and registered.has_autograd  # a call chooses nothing

    def _take_backward(self) -> None:
        """Two kernel objects of one library stand for one op: a backward that one of them has, both have."""
        if self._fallback.has_backward:
            check_can_have_backward(self._fallback.schema)
        shared = self._registered.fallback.kernel
        if self._fallback.has_backward and shared.gradient is not self.kernel.gradient:
            shared.gradient = self.kernel.gradient
        self._registered.add_backward()

    def backward(self, function: object = None, *, graph: bool = False) -> Any:
        """`@op.backward`: what computes the gradients; see `Kernel.backward`."""
        if function is None:
            return lambda given: self.backward(given, graph=graph)
        check_can_have_backward(self.kernel.schema)
        self.kernel.gradient = gradient_of(self.kernel.schema, function, graph)
        self.renew()
        return function

    def renew(self) -> None:
        """Takes what the kernel is by now: its backward, and what it reads of its module."""
        self._registered.split()
        state = prepared(self.kernel)
        state.refresh_checks()
        if self._state is not state or self._checks is not state.checks:
            if self._state is not None:
                self._registered.replace(self._fallback)
            self._state, self._checks = state, state.checks
            keep_apart(self._registered.name, self.kernel)

    def __reduce__(self) -> tuple[Any, ...]:
        return op_of, (self.kernel,)

    def __copy__(self) -> TorchOp:
        return self

    def __deepcopy__(self, memo: object) -> TorchOp:
        return self

    def __repr__(self) -> str:
        return f"<einkorn.torch.Op {self.torch.name()}>"


_MISSING = object()


def _grouped(schema: OpSchema, values: list[Any], parameters: Mapping[str, object]) -> list[Any]:
    """The arguments of a call, those of a variadic argument in a list."""
    if not schema.variadic or any(isinstance(value, list | tuple) for value in values):
        return values
    counts, flat = counted_inputs(schema, values, bind_parameters(schema, parameters))
    rest = iter(flat)
    grouped: list[Any] = []
    for argument in schema.inputs:
        several = [next(rest) for _ in range(counts[argument.name])] if argument.name in counts else None
        grouped.append(next(rest) if several is None else several)
    return grouped


def _as_tensor(value: object) -> Any:
    """An array of NumPy as a tensor over its memory; other values stay as they are."""
    if isinstance(value, np.ndarray):
        return torch.from_dlpack(value) if value.flags.writeable else torch.tensor(value)
    return value


_ops: weakref.WeakKeyDictionary[Any, TorchOp] = weakref.WeakKeyDictionary()


def op_of(kernel: AnyKernel | LoadedKernel) -> TorchOp:
    """The op of a kernel; one for each kernel object."""
    entry = _ops.get(kernel)
    if entry is None:
        with lock:
            entry = _ops.get(kernel)
            if entry is None:
                one = LibraryKernel(kernel) if isinstance(kernel, LoadedKernel) else kernel
                entry = _ops[kernel] = TorchOp(one)
    entry.renew()
    return entry


def run_kernel(kernel: AnyKernel, args: Sequence[object], parameters: Mapping[str, object]) -> Any:
    """A kernel that a backward consists of."""
    return op_of(kernel)(*args, **parameters)


def register(fallback: PythonFallback, into: bool, own: bool = False) -> Registered:
    """The name that stands for a kernel from now on; one of its `own`, which stood for no other, on request.

    Raises:
        GraphError: EK0880, its signature has no counterpart in PyTorch.
    """
    schema = fallback.schema
    namespace, _, plain = schema.name.rpartition("::")
    namespace = namespace.replace("::", "_") or NAMESPACE
    plain += INTO if into else ""
    write = into_schema if into else function_schema
    with shielded(), lock:  # PyTorch catches exceptions where it looks for the caller
        for number in range(1, 1_000_000):
            name = plain if number == 1 else f"{plain}_{number}"
            qualified = f"{namespace}::{name}"
            text = write(schema, name)
            owner = _owners.get(qualified)
            if owner is None and not is_taken(namespace, name):
                _owners[qualified] = Registered(qualified, text, fallback, into)
                return _owners[qualified]
            if owner is None or own or owner.schema != text:
                continue
            if _is_same(owner.fallback.kernel, fallback.kernel):
                return owner
            if _is_redefinition(owner.fallback.kernel, fallback.kernel):
                before = owner.fallback
                owner.replace(fallback)
                for op in list(owner.ops):  # those of the kernel that was there go on as they are
                    owner.ops.discard(op)
                    op._stand_for(register(before, into, own=True))
                return owner
    raise AssertionError


def _let_record(name: str) -> None:
    """Lets autograd record an op where derivatives are computed: also one without a backward, so that none is lost."""
    _owners[name].record()


_let_record._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo calls it as it traces


def _define_into(op: TorchOp) -> None:
    """Defines the op that is given its outputs, unless it is."""
    if op._into is None:
        op._into = register(op._fallback, into=True).overload


_define_into._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as above


def _is_same(old: AnyKernel, new: AnyKernel) -> bool:
    if isinstance(old, LibraryKernel) and isinstance(new, LibraryKernel):
        return old.loaded is new.loaded or (_is_redefinition(old, new) and old.loaded.digest == new.loaded.digest)
    return old is new


def _is_redefinition(old: AnyKernel, new: AnyKernel) -> bool:
    """Whether a kernel takes the place of another: it has the same name, in the same module or library."""
    return type(old) is type(new) and (old.__module__, old.__name__) == (new.__module__, new.__name__)
