"""Stages control flow: one of two bodies, a body that runs again and again, a subgraph.

    def halve(x, n):
        return x / 2, n + 1

    x, steps = ops.while_loop((x, 0), lambda x, n: ops.max(x)[0] > 1, halve)

Bodies are Python functions. They are called once, while the graph is built, and what they stage is compiled into the
graph's entry: no Python runs between the ops of a loop. They may read any value of the graph around them. Sizes are
checked when the graph is called, those of a body that does not run, too; what computes sizes runs before (see
`staging.hoist`).

What a body gives back needs a place of its own, which the next round or the code behind overwrites or reads. Where it
gives back what something else holds (a value from outside, a constant, the same value twice), a copy is staged.

See also `passes.control_flow` (where the values lie).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, shown_value
from ...dsl.diagnostics.places import Place, user_place
from ...dsl.types.dtype import DType
from ..arguments import list_of, text_of, wrong
from ..driver.devices import DeviceRef
from ..ir import Body, Branch, Carried, Loop, Node
from ..staging.bodies import OpenBody
from ..staging.graph import Graph
from ..staging.inline import inline
from ..staging.value import BufferValue, TensorValue, TensorValueLike, Value
from ..types.dims import AlgebraicDim, Dim, StaticDim, SymbolicDim, linear_in
from ..types.promotion import is_weak, literal_array, weak_array
from ..types.tensor_type import BufferType, ShapedType, TensorType, shown
from .draws import Draws, counting, draws, go_on
from .operands import HINT_FOR_SYMBOLS, as_shape, check_kind, same_device, tensor
from .stage import builtin, current, fail, op


class UnsupportedError(GraphError, NotImplementedError):
    """Something that the documentation names as not implemented."""


@op(dtypes={"pred": "bool"}, example="ops.cond(pred, [x.type], lambda: ops.exp(x), lambda: -x)")
def cond(
    pred: TensorValueLike,
    out_types: Iterable[TensorType] | None,
    then_fn: Callable[[], object],
    else_fn: Callable[[], object],
) -> list[TensorValue]:
    """The results of `then_fn` where `pred`, a bool of one element, is true, else those of `else_fn`; only one runs.

    The functions take nothing, and both give back values of `out_types`: a value, or a list of them. With None for
    `out_types` they give back nothing, and change buffers. Plain numbers take the dtype from `out_types`.

    Raises:
        DTypeError: EK0413 `pred` is not a bool.
        GraphError: EK0444 `pred` has axes; EK0445 a function gives back something else than `out_types` say.
    """
    name, place = "cond", user_place()
    graph = current(name)
    condition = _condition(name, "pred", _single(pred), [])
    types = None if out_types is None else _types(out_types)
    for argument, function in (("then_fn", then_fn), ("else_fn", else_fn)):
        _check_function(argument, function)
    same_device(name, {"pred": condition}, types[0].device if types else None)
    device = condition.device
    then = _trace(graph, name, "then_fn", then_fn, (), types, place, (draws(), device))
    other = _trace(graph, name, "else_fn", else_fn, (), types, place, (draws(), device))
    if types is None:
        for traced in (then, other):
            _check_nothing(traced, place)
    else:
        for traced, opposite in ((then, other), (other, then)):
            _check_results(traced, types, "out_types", partial(_origins, traced, opposite), place)
    make = partial(Branch, condition.number, (then.body, other.body))
    *results, count = graph.stage_control(make, [*(types or ()), _count_type(device)], place)
    if then.draws.same_count(other.draws):
        graph.unused += [*then.counted, *other.counted, count.number]
        go_on(then.draws)
    else:
        go_on(Draws(base=count))
    return results


@op(
    dtypes={},
    example="ops.while_loop((x, 0), lambda x, n: n < 3, lambda x, n: [x * 0.5, n + 1])",
)
def while_loop(
    initial_values: Iterable[TensorValueLike] | TensorValueLike,
    predicate: Callable[..., TensorValueLike],
    body: Callable[..., Any],
) -> list[TensorValue]:
    """Carries values through `body` as long as `predicate` holds of them; gives the last ones.

    Both functions take as many values as there are initial ones. `predicate` returns a bool of one element, evaluated
    before each round, the first among them; `body` gives values of the same types. Plain numbers may begin a loop;
    whole ones are int64, others float32.

    The body may read and change buffers from outside; they are not carried.

    Raises:
        GraphError: EK0447 there are no initial values, or one is a buffer (also a NotImplementedError); EK0444
            `predicate` gives no bool of rank 0; EK0445 `body` gives back something else than it takes.
    """
    name, place = "while_loop", user_place()
    graph = current(name)
    for argument, function in (("predicate", predicate), ("body", body)):
        _check_function(argument, function)
    values = _initial(name, graph, initial_values)
    types = [value.type for value in values]
    initial, device = [_copy(value) for value in values], types[0].device
    first = graph.next_value
    counter = _copy(draws().count(device))
    counted = range(first, graph.next_value)
    with graph.bodies.body(name, place):
        *carried, count = graph.stage_control(Carried, [*types, counter.type], place)
        start = Draws(draws().seed, count)
        test = _trace(
            graph, name, "predicate", lambda *values: _single(predicate(*values)), carried, None, place, (start, None)
        )
        _check_predicate(name, test, device)
        _check_draws(test.draws, count)
        step = _trace(graph, name, "body", body, carried, types, place, (test.draws, device))
        begun = _Traced(graph, "initial_values", step.body, values)
        _check_results(step, types, "initial_values", partial(_origins, step, begun), place)
    numbers = (tuple(v.number for v in (*initial, counter)), tuple(v.number for v in (*carried, count)))
    *results, last = graph.stage_control(partial(Loop, *numbers, (test.body, step.body)), [*types, count.type], place)
    if step.draws.same_count(start):
        graph.unused += [*counted, count.number, *step.counted, last.number]
    else:
        go_on(Draws(base=last, offset=test.draws.offset))
    return results


def _count_type(device: DeviceRef) -> TensorType:
    """The type of a count of random ops, which bodies hand on."""
    return TensorType(DType.int64, [], device)


def _check_draws(end: Draws, count: TensorValue) -> None:
    """A predicate gives back no count, so that it has to be known how often it draws."""
    if end.base is not count:
        fail(
            "while_loop",
            "predicate draws random numbers in a cond or a while_loop of its own, and how many is not known",
            code="EK0415",
            argument="predicate",
            expected="a number of random ops that is known",
            got="one that depends on the values of a call",
            hint="draw in the body, and carry what the predicate needs",
        )


@op(example="ops.call(Graph('twice', lambda v: v * 2, [x.type]), x)")
def call(graph: Graph, *args: TensorValueLike | BufferValue, prefix: str = "") -> list[TensorValue]:
    """The outputs of a finished graph, mostly a subgraph, over these arguments: its ops are staged here once more.

    Groups of ops that are alike are compiled once. `prefix` begins the names of its weights, so that each call may have
    weights of its own. Plain numbers and arrays take the dtype of the input.

    Raises:
        GraphError: EK0449, the arguments are not those of its inputs: their number, dtypes, shapes or devices.
    """
    name, place = "call", user_place()
    if not isinstance(graph, Graph):
        hint = "Graph.add_subgraph makes one" if callable(graph) else None
        wrong("graph", graph, "a Graph", code="EK0449", hint=hint)
    called, target, start = graph.ir, current(name), text_of("prefix", prefix)
    if len(args) != len(called.inputs):
        fail(
            name,
            f"graph '{called.name}' takes {_count(called.inputs)}, {_count(args)} given",
            code="EK0449",
            argument="args",
            expected=len(called.inputs),
            got=len(args),
        )
    dims: dict[str, Dim] = {}
    pairs = zip(args, called.inputs, strict=True)
    values = [_argument(target, called.name, k, arg, type, dims) for k, (arg, type) in enumerate(pairs)]
    _solve(called.name, called.inputs, values, dims)
    return [value.tensor for value in inline(target, called, values, dims, start, place)]


def _argument(graph: Graph, called: str, k: int, given: Any, type: ShapedType, dims: dict[str, Dim]) -> Value:
    """An argument of a call, which has to have the type of the input; named dims of this type take their sizes."""
    name, argument = "call", f"args[{k}]"
    value: Value
    if is_weak(given) and isinstance(type, TensorType):
        array = weak_array(given, type.dtype, name, argument, user_place())
        value = graph.stage_constant(array, type.device, user_place())
    elif isinstance(given, BufferValue) and isinstance(type, BufferType):
        value = given
    elif isinstance(type, BufferType):
        _misfit(called, argument, type, f"is {given!r}", shown_value(given), "pass a buffer of the graph")
    else:
        value = tensor(name, argument, given)
    graph.check_value(name, argument, value, user_place())
    if value.dtype is not type.dtype:
        _misfit(
            called, argument, type, f"has dtype {value.dtype}", str(value.dtype), f"ops.cast(x, DType.{type.dtype})"
        )
    if value.device != type.device:
        _misfit(
            called, argument, type, f"lies on {value.device}", str(value.device), f"move it with .to({type.device!r})"
        )
    if value.rank != type.rank:
        _misfit(called, argument, type, f"has rank {value.rank}", f"rank {value.rank}", None)
    for axis, (wanted, dim) in enumerate(zip(type.shape, value.shape, strict=True)):
        known = dims.setdefault(wanted.name, dim) if isinstance(wanted, SymbolicDim) else wanted
        if known != dim and not isinstance(wanted, AlgebraicDim):
            size = f", which is {known} here" if known != wanted else ""
            text = f"has size {dim} on axis {axis}{size}"
            hint = None if isinstance(dim, StaticDim) and isinstance(known, StaticDim) else HINT_FOR_SYMBOLS
            _misfit(called, argument, type, text, shown(value.shape), hint)
    return value


def _solve(called: str, types: Sequence[ShapedType], values: Sequence[Value], dims: dict[str, Dim]) -> None:
    """Compares sizes that are expressions; one with a single name without a value gives it its value."""
    pairs = [(k, axis, dim) for k, type in enumerate(types) for axis, dim in enumerate(type.shape)]
    waiting = [each for each in pairs if isinstance(each[2], AlgebraicDim)]
    while waiting:  # the graph was refused if a name does not follow from them
        unknown = [[name for name in dim.parameters if name not in dims] for _, _, dim in waiting]
        position = next(p for p, names in enumerate(unknown) if len(names) < 2)
        k, axis, wanted = waiting.pop(position)
        dim = values[k].shape[axis]
        for name in unknown[position]:
            form = linear_in(wanted, name)
            assert form is not None
            dims[name] = (dim - form[1].substitute(dims)) // form[0]
        if wanted.substitute(dims) != dim:
            text = f"has size {dim} on axis {axis}"
            _misfit(called, f"args[{k}]", types[k], text, shown(values[k].shape), HINT_FOR_SYMBOLS)


def _misfit(called: str, argument: str, type: ShapedType, what: str, got: str, hint: str | None) -> NoReturn:
    fail(
        "call",
        f"{argument} {what}, and graph '{called}' takes {type}",
        code="EK0449",
        argument=argument,
        expected=str(type),
        got=got,
        hint=hint,
    )


@dataclass(frozen=True)
class _Traced:
    """A body that was staged: what its function gave back, and the values that it gives."""

    graph: Graph
    argument: str  # of the op: which function it was
    body: Body
    values: list[TensorValue]
    draws: Draws = field(default_factory=Draws)  # the count of random ops at its end
    counted: range = range(0)  # the values that were made to give back this count


def _trace(
    graph: Graph,
    name: str,
    argument: str,
    function: Callable[..., Any],
    arguments: Sequence[TensorValue],
    types: Sequence[TensorType] | None,
    place: Place | None,
    random: tuple[Draws, DeviceRef | None],
) -> _Traced:
    """Calls a function of the user's as a body. Of a predicate, and of what gives back nothing, no types are known.

    `random` says from where random ops are counted, and on which device the body gives back their count behind its
    values; None for a body that does not.
    """
    start, given_on = random
    with graph.bodies.body(f"{argument} of {name}", place, may_not_run=name == "cond") as opened:
        with counting(start) as end:
            results = _listed(function(*arguments))
        device = arguments[0].device if arguments else graph.inputs[0].device if graph.inputs else DeviceRef.CPU()
        values = [
            _value(graph, name, argument, result, types[k] if types and k < len(types) else None, device)
            for k, result in enumerate(results)
        ]
        numbers = []
        for k, value in enumerate(values):
            unchanged = types is not None and k < len(arguments) and value.number == arguments[k].number
            if argument == "predicate" or unchanged or (value.number not in numbers and _is_own(graph, opened, value)):
                numbers.append(value.number)
            else:
                numbers.append(_copy(value).number)
        first = graph.next_value
        if given_on is not None:
            count = end[0].count(given_on)
            numbers.append((count if _is_own(graph, opened, count) else _copy(count)).number)
        counted = range(first, graph.next_value)
    body = Body(opened.first_node, opened.end_node, tuple(numbers))
    return _Traced(graph, argument, body, values, end[0], counted)


def _is_own(graph: Graph, body: OpenBody, value: TensorValue) -> bool:
    """Whether a value can be stored where the body's result lies: it is made in this body, and not by a loop."""
    return value.number >= body.first_value and isinstance(graph.maker(value.number), Node | Branch)


def _copy(value: TensorValue) -> TensorValue:
    return builtin("control_flow", "copy", [value], {}, [value.type])[0]


def _listed(results: object) -> list[Any]:
    if results is None:
        return []
    return list(results) if isinstance(results, list | tuple | Iterator) else [results]


def _value(
    graph: Graph, name: str, argument: str, result: Any, type: TensorType | None, device: DeviceRef
) -> TensorValue:
    """What a function gave back, as a tensor; a plain number or array takes the dtype that is wanted."""
    if not is_weak(result):
        value = tensor(name, argument, result)
        graph.check_value(name, argument, value, user_place())
        return value
    place = user_place()
    if type is None:
        array = literal_array(result, None, name, place)
    else:
        array, device = weak_array(result, type.dtype, name, argument, place), type.device
    return graph.stage_constant(array, device, place)


def _initial(name: str, graph: Graph, given: object) -> list[TensorValue]:
    """The values that a loop begins with."""
    if isinstance(given, Value) or is_weak(given) or hasattr(given, "__tensorvalue__"):
        given = [given]
    given = list_of("initial_values", given, "values", "EK0447")
    if not given:
        text = "a loop has to carry something, and initial_values is empty"
        fail(name, text, code="EK0447", argument="initial_values", expected="at least one value", got="[]")
    for k, value in enumerate(given):
        if isinstance(value, BufferValue):
            fail(
                name,
                f"initial_values[{k}] is a buffer, and a loop carries tensors only",
                code="EK0447",
                kind=UnsupportedError,
                argument=f"initial_values[{k}]",
                expected="TensorValue",
                got=repr(value),
                hint="the body may read and change buffers from outside: leave it out of what is carried",
            )
    names = [f"initial_values[{k}]" for k in range(len(given))]
    strong = {each: tensor(name, each, value) for each, value in zip(names, given, strict=True) if not is_weak(value)}
    same_device(name, strong)
    device = next((value.device for value in strong.values()), DeviceRef.CPU())
    for each, value in zip(names, given, strict=True):
        if each not in strong:
            strong[each] = graph.stage_constant(literal_array(value, None, name, user_place()), device, user_place())
    return [strong[each] for each in names]


def _types(out_types: object) -> list[TensorType]:
    types = list_of("out_types", out_types, "types", "EK0441")
    for k, type in enumerate(types):
        if not isinstance(type, TensorType):
            wrong(f"out_types[{k}]", type, "a TensorType", code="EK0441")
    return types


# *** what the functions have to keep ***


def _check_function(argument: str, function: object) -> None:
    if not callable(function):
        hint = "wrap it: lambda: x" if isinstance(function, Value) else None
        wrong(argument, function, "a function", hint=hint)


def _single(value: Any) -> Any:
    """A tensor of one element without its axes."""
    one = isinstance(value, TensorValue) and value.rank and value.shape.num_elements == 1
    return as_shape(value, []) if one else value


def _condition(name: str, argument: str, value: Any, notes: list[str]) -> TensorValue:
    """A bool of rank 0."""
    if isinstance(value, bool | np.bool_):
        graph = current(name)
        device = graph.inputs[0].device if graph.inputs else DeviceRef.CPU()
        return graph.stage_constant(np.array(value), device, user_place())
    condition = tensor(name, argument, value)
    check_kind(name, argument, condition, "bool")
    if condition.rank:
        fail(
            name,
            f"argument '{argument}' has to be a single bool, and has shape {shown(condition.shape)}",
            code="EK0444",
            argument=argument,
            expected="rank 0",
            got=f"rank {condition.rank}",
            notes=notes,
            hint="take one element, x[0]; or ops.all(x, None, keepdims=False), or ops.where for a choice by element",
        )
    return condition


def _check_predicate(name: str, traced: _Traced, device: DeviceRef) -> None:
    """That a predicate gives one bool."""
    if len(traced.values) != 1:
        fail(
            name,
            f"predicate has to return one bool of rank 0, and returns {_count(traced.values)}",
            code="EK0444",
            argument="predicate",
            expected="a bool of rank 0",
            got=_count(traced.values),
        )
    (value,) = traced.values
    if value.dtype is not DType.bool:
        fail(
            name,
            f"predicate has to return a bool of rank 0, and returns {value!r}",
            code="EK0444",
            argument="predicate",
            expected="bool",
            got=str(value.dtype),
            notes=_origins(traced),
            hint="use a comparison, such as x != 0",
        )
    _condition(name, "predicate", value, _origins(traced))
    same_device(name, {"predicate": value}, device)


def _check_nothing(traced: _Traced, place: Place | None) -> None:
    if traced.values:
        raise GraphError(
            f"cond: {traced.argument} gives back {_count(traced.values)}, and out_types is None",
            code="EK0445",
            place=place,
            op="cond",
            argument=traced.argument,
            expected="nothing",
            got=_count(traced.values),
            notes=_origins(traced),
            hint="pass their types: out_types=[TensorType(...)]",
        )


def _check_results(
    traced: _Traced, types: Sequence[TensorType], source: str, notes: Callable[[], list[str]], place: Place | None
) -> None:
    """That a body gives back values of these types, which `source` says."""
    name = "cond" if source == "out_types" else "while_loop"
    if len(traced.values) != len(types):
        raise GraphError(
            f"{name}: {traced.argument} gives back {_count(traced.values)}, and {source} says {len(types)}",
            code="EK0445",
            place=place,
            op=name,
            argument=traced.argument,
            expected=_count(types),
            got=_count(traced.values),
            notes=notes(),
        )
    for k, (value, type) in enumerate(zip(traced.values, types, strict=True)):
        if value.type == type:
            continue
        if value.dtype is not type.dtype:
            hint: str | None = f"ops.cast(x, DType.{type.dtype})"
        elif value.device != type.device:
            hint = f"move it with .to({type.device!r})"
        else:
            hint = None if value.shape.is_static and type.shape.is_static else HINT_FOR_SYMBOLS
        raise GraphError(
            f"{name}: result {k} of {traced.argument} is {value.type}, and {source} says {type}",
            code="EK0445",
            place=place,
            op=name,
            argument=traced.argument,
            expected=str(type),
            got=str(value.type),
            notes=notes(),
            hint=hint,
        )


def _count(values: Sequence[object]) -> str:
    return "nothing" if not values else "1 value" if len(values) == 1 else f"{len(values)} values"


def _origins(*traced: _Traced) -> list[str]:
    """What functions gave back and where that was staged, as sentences."""
    origins = []
    for one, k, value in ((each, *item) for each in traced for item in enumerate(each.values)):
        maker = one.graph.maker(value.number)
        place = f", staged at {maker.place}" if maker is not None and maker.place is not None else ""
        what = f"{one.argument}[{k}]" if one.argument == "initial_values" else f"result {k} of {one.argument}"
        origins.append(f"{what} is {value.type}{place}")
    return origins
