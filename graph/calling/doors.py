"""Opens doors to loaded code: generated functions of other callers' conventions; see `dsl.contract.doors`.

A door's code names no kernel: it is made once for each form, kept in the cache, and loaded with a table of addresses.
Where no doors can be made (`EINKORN_DOORS=0`, `EINKORN_NO_JIT=1`, no LLVM, no such host) callers go by Python, with the
same results.

    spec = door_spec(caller)                    what is to be known of the entry; None where it is not plain
    library = load_door("python", spec, form)   the code; None where there are no doors
    owner = DoorOwner(caller)                   receives reports, and converts them to errors
    entry_words(caller, owner)                  what every table begins with

See also `calling.python_door` (what is behind the first words of a table is each door's own).
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...dsl.contract import abi
from ...dsl.contract.doors import NUMPY_SCALAR, DoorArgument, DoorOutput, DoorSpec
from ...dsl.diagnostics.errors import TargetError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.fingerprint import fingerprint
from ...dsl.environment.knobs import knobs
from ...dsl.signature.dims import DimName, DimNumber, DimOperation, Expression, FunctionCall
from ...dsl.types.dtype import DType
from ..driver.shared_library import SharedLibrary
from ..driver.stacks import STACKS_ADDRESS
from ..findings.report_callbacks import REPORT, owner_number
from ..findings.reports import Failure
from ..ir import GraphIR, Node
from ..loading.compile import door_code, host_target, node_facts
from ..types.dims import AlgebraicDim, Dim, StaticDim
from ..types.polynomial import Atom, Terms
from ..types.strides import stride_dims
from ..types.tensor_type import BufferType
from .call import Caller

_log = logging.getLogger("einkorn.load")

ELEMENTS = 32768  # of a kernel that does little with each: from here on a second thread is worth while
ELEMENTS_OF_LOOPS = 4096  # of other kernels
CHEAP_OPERATIONS = 8  # operations
WHOLE = tuple(dtype for dtype in DType if dtype.is_integral() and not dtype.is_packed())
REAL = (DType.float32, DType.float64)
SCALARS = {
    "bool": (DType.bool,),
    "int": (*WHOLE, *REAL),
    "float": REAL,
    "number": REAL,
    NUMPY_SCALAR: (DType.bool, *WHOLE, DType.float16, *REAL),
}  # what doors make of Python's numbers


def scalar_of(dtype: DType) -> str:
    """As what numbers of Python's are passed for a dtype."""
    return "bool" if dtype is DType.bool else "int" if dtype.is_integral() else "number"


# *** what is to be known of an entry ***


def door_spec(
    caller: Caller,
    scalars: Sequence[str] = (),
    order: Sequence[int] = (),
    ranks: Sequence[int] = (),
    bounds: Sequence[tuple[Dim, int, int]] = (),
    *,
    apart: bool = False,
    arena: bool = False,
    late: bool = False,
) -> DoorSpec | None:
    """What a door has to know of a caller's entry, or None where only Python can call it.

    Args:
        scalars: as what number of Python's each input is passed; "" for an array.
        order: for each axis which axis of the tensors of a call it is, where these lie in another order.
        ranks: how many axes each tensor of such a call has.
        bounds: sizes, of each the least and the most that it serves.
        apart: whether the door looks at what views share with tensors that are changed.
        arena: whether the door has memory for intermediate results.
        late: whether the door calls entries of two stages, the first of which computes sizes.
    """
    if not _is_plain(caller) or (caller.code.plan.temps and not arena) or (caller.ir.steps and not late):
        return None
    ir, plan = caller.ir, caller.code.plan
    names: dict[str, str] = {}
    arguments = []
    for number, type in enumerate(ir.inputs):
        axes = tuple(_axis(dim, names) for dim in type.shape)
        pattern = ir.pattern(number)
        strides = None
        if pattern is not None:
            strides = tuple(_axis(dim, names) for dim in stride_dims(number, pattern))
        changed = isinstance(type, BufferType)
        scalar = scalars[number] if scalars else ""
        if scalar and type.dtype not in SCALARS[scalar]:
            return None
        if strides is not None and not apart and any(isinstance(each, BufferType) for each in ir.inputs):
            return None  # what is changed has to be apart from all others, which is looked at elsewhere
        places = tuple(axis + ranks[number] - len(order) for axis in order) if order and ranks[number] else ()
        lying = tuple(max(place, -1) for place in places)
        arguments.append(DoorArgument(type.dtype, axes, strides, changed, scalar, lying))
    computed = tuple(names.setdefault(name, f"late{k}") for step in ir.steps for k, name in enumerate(step.names))
    try:
        slots = tuple(expression(dim, names) for dim in plan.slots)
        outputs = tuple(
            DoorOutput(type.dtype, tuple(expression(dim, names) for dim in type.shape), tuple(order))
            for type in ir.output_types
        )
        relations = (*_relations(ir, names), *_bounded(bounds, names))
        numbers = plan.temps
        temps = tuple(tuple(expression(dim, names) for dim in plan.buffers[number].shape) for number in numbers)
    except KeyError:  # a size that is computed on the way
        return None
    pointers = tuple(
        ("temp", numbers.index(number)) if number in numbers else buffer.source
        for number, buffer in enumerate(plan.buffers)
    )
    return DoorSpec(tuple(arguments), outputs, pointers, slots, relations, *small_call(caller.ir), temps, computed)


def _is_plain(caller: Caller) -> bool:
    code, ir = caller.code, caller.ir
    plan = code.plan
    if any(isinstance(dim, AlgebraicDim) for type in ir.inputs for dim in type.shape):
        return False  # its names are solved for in Python
    return (
        caller.plan.device.is_host
        and code.keep is not None
        and code.abi == abi.ABI_VERSION
        and code.launching is None
        and caller.memory.filling is None
        and caller.reports.prints is None
        and not (ir.traced or plan.copies)
        and (not ir.steps or _has_two_stages(caller))
        and all(buffer.source[0] in ("input", "output", "constant", "temp", "sizes") for buffer in plan.buffers)
        and not any(type.dtype.is_packed() for type in (*ir.inputs, *ir.output_types))
    )


def _has_two_stages(caller: Caller) -> bool:
    """Whether the first stage of an entry computes sizes, and nothing else."""
    ir, plan = caller.ir, caller.code.plan
    if not len(ir.steps) == len(plan.steps) == 1 or plan.temps:
        return False
    first = () if plan.entry is None else plan.entry.groups[: plan.stages[0]]  # ready-made code is of one op
    return all(plan.buffers[store.buffer].source[0] == "sizes" for group in first for store in group.stores)


def _axis(dim: Dim, names: dict[str, str]) -> DimNumber | DimName:
    """A size or a stride of an input; names are numbered in order of appearance, so that equal forms have equal
    specs."""
    if isinstance(dim, StaticDim):
        return DimNumber(int(dim))
    (name,) = dim.parameters
    return DimName(names.setdefault(name, f"s{len(names)}"))


def _relations(ir: GraphIR, names: Mapping[str, str]) -> Iterable[tuple[Expression, Expression, bool]]:
    """What sizes have to fulfil, those of values in between among them; see `size_checks`."""
    for constraint in ir.constraints:
        # what is broadcast is left to Python's checks
        yield expression(constraint.left, names), expression(constraint.right, names), constraint.kind != "at_least"
    zero, seen = DimNumber(0), set(ir.output_types)
    for node in ir.nodes:
        for type in node.out_types:
            if type in seen:
                continue
            seen.add(type)
            axes = [expression(dim, names) for dim in type.shape if not isinstance(dim, StaticDim)]
            for axis in axes:
                if not isinstance(axis, DimName):
                    yield axis, zero, False
            if len(axes) > 1:  # it has no number where it needs more than 64 bits
                yield functools.reduce(lambda a, b: DimOperation("*", a, b), axes), zero, False


def _bounded(
    bounds: Sequence[tuple[Dim, int, int]], names: Mapping[str, str]
) -> Iterable[tuple[Expression, Expression, bool]]:
    """Bounds of sizes, as relations."""
    for dim, low, high in bounds:
        size = expression(dim, names)
        yield size, DimNumber(low), False
        yield DimNumber(high), size, False


def expression(dim: Dim, names: Mapping[str, str]) -> Expression:
    """A dim of a graph in the dims language, over the names of a door.

    Raises:
        KeyError: it has a name that no input determines.
    """
    return _sum(dim._terms, names)


def _sum(terms: Terms, names: Mapping[str, str]) -> Expression:
    result: Expression | None = None
    for monomial, factor in terms:
        parts = [_atom(atom, names) for atom in monomial]
        parts += [DimNumber(factor)] if factor != 1 or not parts else []
        product = functools.reduce(lambda a, b: DimOperation("*", a, b), parts)
        result = product if result is None else DimOperation("+", result, product)
    return DimNumber(0) if result is None else result


def _atom(atom: Atom, names: Mapping[str, str]) -> Expression:
    if not atom.kind:
        return DimName(names[atom.name])
    operands = [_sum(terms, names) for terms in atom.operands]
    if atom.kind == "//":
        return DimOperation("//", *operands)
    return FunctionCall(atom.kind, tuple(operands))


def small_call(ir: GraphIR) -> tuple[int, bool]:
    """Up to how many elements a call is done by one thread, and whether it is bounded what is done for each."""
    cost, target = 0, host_target()
    for node in ir.nodes:
        if isinstance(node, Node):
            facts = node_facts(ir, target, node)
            if not facts.elementwise or facts.loops:
                return ELEMENTS_OF_LOOPS, False
            cost += facts.cost
    return ELEMENTS * CHEAP_OPERATIONS // max(CHEAP_OPERATIONS, cost), True


# *** their code ***

_lock = fork_lock()
_opened: dict[object, SharedLibrary] = {}
_copies = itertools.count()


def load_door(name: str, spec: DoorSpec, form: object = None, *, own: bool = False) -> SharedLibrary | None:
    """The code of a door, loaded; None where none can be made.

    Args:
        name: its row in `compiler.doors.rows`.
        spec, form: what its text is written from; both can be hashed, and their texts say all that is in them.
        own: whether it gets memory of its own, for a table that is found by a symbol. Without it, equal doors are one.
    """
    if not knobs.doors or knobs.no_jit:
        return None
    known = None if own else _opened.get((name, spec, form))
    if known is not None:  # without waiting for one that is compiled now
        return known
    with shielded(), _lock:
        known = None if own else _opened.get((name, spec, form))
        if known is not None:
            return known
        try:
            library = _loaded(name, spec, form, own)
        except (TargetError, OSError) as error:
            _log.warning("calls go by Python: %s", error)
            return None
        if not own:
            _opened[name, spec, form] = library
        return library


def _loaded(name: str, spec: DoorSpec, form: object, own: bool) -> SharedLibrary:
    target = host_target()
    if target.system is None:
        raise TargetError(f"there are no doors for {target.name}", code="EK0609")
    key = content_key("door", name, repr(spec), repr(form), target.key, fingerprint())
    cache = shared_cache()
    path = cache.path(key, ".so")
    if own:
        code = cache.get(key, ".so") or door_code(name, spec, form, target)
        if path is None:
            cache.put(key, code, ".so")
        return SharedLibrary(cache.put(content_key(key, os.getpid(), next(_copies)), code, ".so", private=True))
    try:
        return SharedLibrary(path or cache.put(key, door_code(name, spec, form, target), ".so"))
    except OSError:  # another process has removed it meanwhile, or its folder lets no code run
        return SharedLibrary(cache.put(key, door_code(name, spec, form, target), ".so", private=True))


# *** what happens in a call ***


class DoorOwner:
    """Receives the reports of calls through doors to one caller's entry, and converts failures to errors.

    A call is identified by the address of its context, unique while it lasts.
    """

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.number = owner_number(self)
        self.failures: dict[int, Failure | BaseException] = {}

    def on_report(self, context: int, site: int, arguments: object) -> None:
        """Called by native code, from any thread: prints, or notes the first failure of the call."""
        try:
            failure = self.caller.reports.read(site, arguments)
            if failure is not None:
                self.failures.setdefault(context, failure)
        except BaseException as error:  # of a handler of a signal, or of the stream; it cannot cross native code
            self.on_interrupt(context, error)

    def on_exchange(self, context: int, slot: int, kind: int, *given: int) -> int:
        """Called by native code: moves bytes between ranks."""
        return self.caller.reports.on_exchange(context, slot, kind, *given)

    def on_interrupt(self, context: int, error: BaseException) -> None:
        """Ends the call, which raises this exception."""
        self.failures[context] = error
        abi.Context.from_address(context).status = abi.INTERRUPTED

    def error(self, context: int, status: int, arrays: Sequence[Any] = ()) -> BaseException:
        """What a call raises that has ended with this status; called once, before its context is reused."""
        self.caller.reports.abandon(arrays)
        result = self.failures.pop(context, None)
        if isinstance(result, BaseException):
            return result
        return self.caller.reports.error_of(status, result, arrays)


def entry_words(caller: Caller, owner: DoorOwner) -> dict[str, int]:
    """The first words of the table of every door; see `ENTRY_WORDS`. The caller and the owner have to be kept."""
    context = caller.native.context
    native: Any = caller.code.entry
    return {
        "entry": ctypes.cast(native, ctypes.c_void_p).value or 0,
        "report": REPORT,
        "owner": owner.number,
        "pool": context.pool or 0,
        "parallel": context.parallel or 0,
        "threads": context.threads,
        "poll": context.poll or 0,
        "collectives": context.collectives or 0,
        "room": STACKS_ADDRESS,
    }
