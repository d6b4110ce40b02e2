"""Converts recurrent layers: RNN, GRU and LSTM. A few steps are unrolled; many, or a symbolic number, are a loop.

The products of all steps with the input's weights are one product; each step has one with those of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import StaticDim
from ...types.tensor_type import BufferType
from ..agreement import equal_size, with_sizes
from ..call import NodeCall
from ..table import MICROSOFT, onnx_op
from .quantised_products import dynamic_product

MOST_UNROLLED = 32  # steps; each is compiled as part of the whole
Function = Callable[[TensorValue], TensorValue]
Step = Callable[[TensorValue, list[TensorValue]], list[TensorValue]]
Products = Callable[[int], Function]


def _activation(call: NodeCall, name: str, alpha: float | None, beta: float | None) -> Function:
    a, b = alpha, beta
    known: dict[str, Function] = {
        "relu": ops.relu,
        "tanh": ops.tanh,
        "sigmoid": ops.sigmoid,
        "softsign": ops.softsign,
        "softplus": ops.softplus,
        "leakyrelu": lambda x: ops.leaky_relu(x, 0.01 if a is None else a),
        "thresholdedrelu": lambda x: ops.thresholded_relu(x, 1.0 if a is None else a),
        "elu": lambda x: ops.elu(x, 1.0 if a is None else a),
        "hardsigmoid": lambda x: ops.hard_sigmoid(x, 0.2 if a is None else a, 0.5 if b is None else b),
        "affine": lambda x: x * (1.0 if a is None else a) + (0.0 if b is None else b),
        "scaledtanh": lambda x: ops.tanh(x * (1.0 if b is None else b)) * (1.0 if a is None else a),
    }
    if name.lower() not in known:
        call.fail(f"has the activation {name!r}; known are {', '.join(sorted(known))}", argument="activations")
    return known[name.lower()]


@dataclass
class Layer:
    """What the three kinds of layers have in common.

    Attributes:
        call: the node.
        x: (steps, batch, features).
        lengths: of the items of the batch; None when all have all steps.
        functions: the activations, those of the second direction behind those of the first.
        clip: the bound of what goes into activations, or None.
        reverse: for each direction whether it goes backwards.
    """

    call: NodeCall
    x: TensorValue
    lengths: TensorValue | None
    functions: list[Function]
    clip: float | None
    reverse: list[bool]

    def clipped(self, x: TensorValue) -> TensorValue:
        return x if self.clip is None else ops.maximum(ops.minimum(x, self.clip), -self.clip)

    def of_direction(self, number: int) -> list[Function]:
        """The activations of one direction."""
        count = len(self.functions) // len(self.reverse)
        return self.functions[number * count : (number + 1) * count]

    def run(
        self,
        number: int,
        states: list[TensorValue],
        step: Step,
        projected: TensorValue,
    ) -> tuple[TensorValue, list[TensorValue]]:
        """The states after each step in the order of time, and the last ones. `projected` is the input's product."""
        steps = self.x.shape[0]
        if not isinstance(steps, StaticDim) or not 1 <= int(steps) <= MOST_UNROLLED:
            return self._looped(number, states, step, projected)
        outputs: list[TensorValue] = []
        times = range(int(steps))
        for time in reversed(times) if self.reverse[number] else times:
            output, states = self._after(time, states, step(projected[time], states))
            outputs.append(output)
        return ops.stack(outputs[::-1] if self.reverse[number] else outputs, 0), states

    def _looped(
        self, number: int, states: list[TensorValue], step: Step, projected: TensorValue
    ) -> tuple[TensorValue, list[TensorValue]]:
        steps, batch = self.x.shape[0], self.x.shape[1]
        states = [ops.rebind(state, [batch, state.shape[1]]) for state in states]
        kept = ops.buffer_create(BufferType(states[0].dtype, [steps, *states[0].shape], self.x.device))

        def body(round: TensorValue, *before: TensorValue) -> list[TensorValue]:
            time = ops.sub(steps - 1, round) if self.reverse[number] else round
            output, after = self._after(time, list(before), step(projected[time], list(before)))
            kept[time] = output
            return [round + 1, *after]

        _, *last = ops.while_loop([0, *states], lambda round, *_: ops.greater(steps, round), body)
        return ops.buffer_load(kept), last

    def _after(
        self, time: int | TensorValue, before: list[TensorValue], after: list[TensorValue]
    ) -> tuple[TensorValue, list[TensorValue]]:
        """What a step gives and the states behind it; items that have ended keep theirs."""
        if self.lengths is None:
            return after[0], after
        alive = ops.unsqueeze(ops.greater(ops.cast(self.lengths, DType.int64), time), 1)
        after = [ops.where(alive, new, old) for new, old in zip(after, before, strict=True)]
        return ops.where(alive, after[0], 0), after


def _layer(
    call: NodeCall,
    given: Sequence[TensorValue | None],
    defaults: Sequence[str],
    attributes: dict[str, Any],
) -> Layer:
    """`given` are X, W, the lengths, and the initial states."""
    x, w, lengths, *states = given
    assert x is not None and w is not None
    if attributes["layout"]:
        x = ops.permute(x, [1, 0, 2])
    batch, features = x.shape[1], equal_size(call, x.shape[2], w.shape[2], "the numbers of features of X and W")
    for state in states:
        if state is not None:
            items = state.shape[0 if attributes["layout"] else 1]
            batch = equal_size(call, batch, items, "the batches of X and of an initial state")
    if lengths is not None:
        batch = equal_size(call, batch, lengths.shape[0], "the batch of X and the number of lengths")
        lengths = with_sizes(lengths, [batch])
    x = with_sizes(x, [x.shape[0], batch, features])
    direction = attributes["direction"]
    if direction not in ("forward", "reverse", "bidirectional"):
        call.fail(f"has the direction {direction!r}", argument="direction")
    reverse = [direction == "reverse"] if direction != "bidirectional" else [False, True]
    names = attributes["activations"] or [*defaults] * len(reverse)
    names = names[: len(defaults) * len(reverse)]  # the schema's own default is that of two directions
    if len(names) < len(defaults) * len(reverse):
        call.fail(f"has {len(names)} activations, and takes {len(defaults) * len(reverse)}", argument="activations")
    alphas, betas = list(attributes["activation_alpha"] or []), list(attributes["activation_beta"] or [])
    functions = []
    for k, name in enumerate(names):
        alpha = alphas[k] if k < len(alphas) else None
        functions.append(_activation(call, name, alpha, betas[k] if k < len(betas) else None))
    return Layer(call, x, lengths, functions, attributes["clip"], reverse)


def _attributes(**given: object) -> dict[str, Any]:
    return given


def _start(layer: Layer, initial: TensorValue | None, number: int, size: Any, layout: int) -> TensorValue:
    if initial is not None:
        state = initial[:, number] if layout else initial[number]
        return with_sizes(state, [layer.x.shape[1], state.shape[1]])
    return ops.broadcast_to(ops.constant(0, layer.x.dtype, layer.x.device), [layer.x.shape[1], size])


def _results(per_direction: list[TensorValue], lasts: list[list[TensorValue]], layout: int) -> tuple[Any, ...]:
    """Y of (steps, directions, batch, hidden), then the last states of (directions, batch, hidden)."""
    whole = ops.stack(per_direction, 1)
    states = [ops.stack(list(each), 0) for each in zip(*lasts, strict=True)]
    if layout:
        return (ops.permute(whole, [2, 0, 1, 3]), *[ops.permute(state, [1, 0, 2]) for state in states])
    return (whole, *states)


def _product(x: TensorValue, w: TensorValue) -> TensorValue:
    return ops.matmul(x, ops.transpose(w, 0, 1))


@onnx_op("RNN")
def rnn(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    r: TensorValue,
    b: TensorValue | None = None,
    lengths: TensorValue | None = None,
    initial_h: TensorValue | None = None,
    *,
    activations: list[str] | None = None,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:
    """h = f(x W + h R + b)."""
    given = _attributes(
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        layout=layout,
    )
    layer = _layer(call, (x, w, lengths, initial_h), ["Tanh"], given)
    size = r.shape[-1]
    outputs, lasts = [], []
    for number in range(len(layer.reverse)):
        (f,) = layer.of_direction(number)
        projected = _product(layer.x, w[number])
        if b is not None:
            projected = projected + b[number][: int(size)] + b[number][int(size) :]

        def step(now: TensorValue, states: list[TensorValue], f: Function = f, r_: TensorValue = r[number]) -> Any:
            return [f(layer.clipped(now + _product(states[0], r_)))]

        all_states, last = layer.run(number, [_start(layer, initial_h, number, size, layout)], step, projected)
        outputs.append(all_states)
        lasts.append(last)
    return _results(outputs, lasts, layout)


@onnx_op("GRU")
def gru(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    r: TensorValue,
    b: TensorValue | None = None,
    lengths: TensorValue | None = None,
    initial_h: TensorValue | None = None,
    *,
    activations: list[str] | None = None,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    """Gates z and r; h = (1 - z) * candidate + z * h."""
    given = _attributes(
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        layout=layout,
    )
    layer = _layer(call, (x, w, lengths, initial_h), ["Sigmoid", "Tanh"], given)
    n = int(r.shape[-1])
    outputs, lasts = [], []
    for number in range(len(layer.reverse)):
        projected, bias = _product(layer.x, w[number]), None
        if b is not None:
            projected = projected + b[number][: 3 * n]
            bias = b[number][3 * n :]
        step = _gru_step(layer, layer.of_direction(number), r[number], bias, n, bool(linear_before_reset))
        states, last = layer.run(number, [_start(layer, initial_h, number, n, layout)], step, projected)
        outputs.append(states)
        lasts.append(last)
    return _results(outputs, lasts, layout)


def _gru_step(
    layer: Layer, functions: list[Function], own: TensorValue, bias: TensorValue | None, n: int, linear: bool
) -> Step:
    f, g = functions

    def step(now: TensorValue, states: list[TensorValue]) -> list[TensorValue]:
        h = states[0]
        gates = now[:, : 2 * n] + _product(h, own[: 2 * n])
        gates = gates if bias is None else gates + bias[: 2 * n]
        both = f(layer.clipped(gates))
        z, reset = both[:, :n], both[:, n:]
        if linear:
            inner = _product(h, own[2 * n :])
            inner = reset * (inner if bias is None else inner + bias[2 * n :])
        else:
            inner = _product(reset * h, own[2 * n :])
            inner = inner if bias is None else inner + bias[2 * n :]
        candidate = g(layer.clipped(now[:, 2 * n :] + inner))
        return [(1.0 - z) * candidate + z * h]

    return step


@onnx_op("LSTM")
def lstm(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    r: TensorValue,
    b: TensorValue | None = None,
    lengths: TensorValue | None = None,
    initial_h: TensorValue | None = None,
    initial_c: TensorValue | None = None,
    p: TensorValue | None = None,
    *,
    activations: list[str] | None = None,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    """Gates i, o, f and a cell c, in ONNX's order; peepholes where there are some."""
    given = _attributes(
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        layout=layout,
    )
    operands = Operands(b, initial_h, initial_c, p, int(r.shape[-1]), bool(input_forget))

    def product(of: TensorValue) -> Products:
        return lambda number: partial(_product, w=of[number])

    return lstm_layer(call, x, w, lengths, operands, product(w), product(r), given)


@dataclass(frozen=True)
class Operands:
    """What an LSTM has in addition to its products: biases, first states, peepholes; its hidden size; and whether the
    gate that forgets follows from that of the input."""

    b: TensorValue | None
    initial_h: TensorValue | None
    initial_c: TensorValue | None
    p: TensorValue | None
    n: int
    coupled: bool


def lstm_layer(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    lengths: TensorValue | None,
    operands: Operands,
    of_input: Products,
    of_state: Products,
    given: dict[str, Any],
) -> Any:
    """An LSTM in one direction or two.

    Args:
        call: the node.
        x: (steps, batch, features).
        w: (directions, 4 * hidden, features), for its sizes.
        lengths: of the items of the batch.
        operands: see there.
        of_input, of_state: for the number of a direction the product with the weights of the input, or of the state.
        given: the attributes that all recurrent layers have.
    """
    states = (operands.initial_h, operands.initial_c)
    layer = _layer(call, (x, w, lengths, *states), ["Sigmoid", "Tanh", "Tanh"], given)
    n, b, p, layout = operands.n, operands.b, operands.p, given["layout"]
    outputs, lasts = [], []
    for number in range(len(layer.reverse)):
        projected = of_input(number)(layer.x)
        if b is not None:
            projected = projected + b[number][: 4 * n] + b[number][4 * n :]
        peepholes = None if p is None else p[number]
        step = _lstm_step(layer, layer.of_direction(number), of_state(number), peepholes, n, operands.coupled)
        start = [_start(layer, each, number, n, layout) for each in states]
        all_states, last = layer.run(number, start, step, projected)
        outputs.append(all_states)
        lasts.append(last)
    return _results(outputs, lasts, layout)


@onnx_op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    r: TensorValue,
    b: TensorValue | None,
    lengths: TensorValue | None,
    initial_h: TensorValue | None,
    initial_c: TensorValue | None,
    p: TensorValue | None,
    w_scale: TensorValue,
    w_zero_point: TensorValue,
    r_scale: TensorValue,
    r_zero_point: TensorValue,
    *,
    activations: list[str] | None = None,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> Any:
    """The same with quantised weights, (directions, features, 4 * hidden). Input and states are quantised by the range
    of their elements: the input as a whole, the states in each step."""
    given = _attributes(
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        layout=0,
    )
    operands = Operands(b, initial_h, initial_c, p, int(r.shape[-2]), bool(input_forget))

    def product(of: TensorValue, scale: TensorValue, zero: TensorValue) -> Products:
        def with_weights(number: int) -> Function:
            return partial(dynamic_product, call, b=of[number], b_scale=scale[number], b_zero=zero[number], bias=None)

        return with_weights

    products = product(w, w_scale, w_zero_point), product(r, r_scale, r_zero_point)
    return lstm_layer(call, x, ops.transpose(w, 1, 2), lengths, operands, *products, given)


def _lstm_step(
    layer: Layer, functions: list[Function], own: Function, p: TensorValue | None, n: int, coupled: bool
) -> Step:
    f, g, h_function = functions

    def step(now: TensorValue, states: list[TensorValue]) -> list[TensorValue]:
        h, c = states
        gates = now + own(h)
        i, o, forget, cell = (gates[:, k * n : (k + 1) * n] for k in range(4))
        if p is not None:
            i, forget = i + p[:n] * c, forget + p[2 * n :] * c
        i = f(layer.clipped(i))
        forget = 1.0 - i if coupled else f(layer.clipped(forget))
        after = forget * c + i * g(layer.clipped(cell))
        if p is not None:
            o = o + p[n : 2 * n] * after
        return [f(layer.clipped(o)) * h_function(after), after]

    return step
