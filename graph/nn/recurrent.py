"""Recurrent layers, with the parameters and the order of gates of PyTorch's: their state dicts load as they are."""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import flag_of
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..types.dims import StaticDim
from ..types.tensor_type import BufferType
from .linear import drawn, size_of
from .module import Module

MOST_UNROLLED = 32  # steps in a graph; more, and numbers of steps that only a call has, are a loop


class Recurrent(Module[..., Any]):
    """What the recurrent layers have in common.

    Args:
        input_size: the size of the last axis of the input.
        hidden_size: the size of a state.
        num_layers: layers one above the other.
        bias: whether the gates have biases.
        batch_first: whether the batch is the first axis and time the second; else they change places.
        bidirectional: whether a second state goes from the end to the start.
        dtype, device: of the weights, which begin with random numbers; the defaults when left out.
    """

    gates = 0
    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        bidirectional: bool = False,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        self.input_size, self.hidden_size = size_of("input_size", input_size), size_of("hidden_size", hidden_size)
        self.num_layers = size_of("num_layers", num_layers)
        self.has_bias, self.batch_first = flag_of("bias", bias), flag_of("batch_first", batch_first)
        self.directions = ("", "_reverse") if flag_of("bidirectional", bidirectional) else ("",)
        rows = self.gates * self.hidden_size
        for layer in range(self.num_layers):
            inputs = self.input_size if layer == 0 else self.hidden_size * len(self.directions)
            for direction in self.directions:
                end = f"_l{layer}{direction}"
                shapes = {"weight_ih": [rows, inputs], "weight_hh": [rows, self.hidden_size]}
                shapes |= {"bias_ih": [rows], "bias_hh": [rows]} if self.has_bias else {}
                for name, shape in shapes.items():
                    setattr(self, name + end, drawn(shape, self.hidden_size, dtype, device))

    def forward(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        """The states of the last layer at all times, and the last states of all layers.

        Args:
            x: (time, batch, input_size), or as `batch_first` says.
            state: what to begin with, (layers * directions, batch, hidden_size), of an LSTM a pair of these; zeros
                when left out.

        Returns:
            A tensor (time, batch, directions * hidden_size), and the last states in the form of `state`.
        """
        x = F.transpose(x, 0, 1) if self.batch_first else x
        given = None if state is None else list(state) if self.states > 1 else [state]
        lasts: list[list[Any]] = []
        for layer in range(self.num_layers):
            outputs = []
            for number, direction in enumerate(self.directions):
                at = layer * len(self.directions) + number
                before = [self._zeros(x)] * self.states if given is None else [each[at] for each in given]
                output, last = self._along(x, before, f"_l{layer}{direction}", bool(number))
                outputs.append(output)
                lasts.append(last)
            x = outputs[0] if len(outputs) == 1 else F.concat(outputs, -1)
        results = [F.stack([last[k] for last in lasts], 0) for k in range(self.states)]
        return F.transpose(x, 0, 1) if self.batch_first else x, tuple(results) if self.states > 1 else results[0]

    def step(self, projected: object, states: list[Any], end: str) -> list[Any]:
        """The states after a step, the output first; `projected` is the input's part of all gates."""
        raise NotImplementedError

    def _zeros(self, x: Any) -> Any:
        return F.broadcast_to(F.constant(0, x.dtype, x.device), [x.shape[1], self.hidden_size])

    def recurrent_part(self, state: object, end: str) -> Any:
        """The part of all gates that a state makes."""
        result = F.matmul(state, F.transpose(getattr(self, f"weight_hh{end}"), 0, 1))
        return result + getattr(self, f"bias_hh{end}") if self.has_bias else result

    def _along(self, x: Any, states: list[Any], end: str, backwards: bool) -> tuple[Any, list[Any]]:
        """The states after all steps of one direction of a layer, and the last ones."""
        projected = F.matmul(x, F.transpose(getattr(self, f"weight_ih{end}"), 0, 1))
        if self.has_bias:
            projected = projected + getattr(self, f"bias_ih{end}")
        steps = x.shape[0]
        count = int(steps) if isinstance(steps, int | StaticDim) else None
        if count is None or (count > MOST_UNROLLED and F.in_graph_context()):
            return self._looped(x, projected, states, end, backwards)
        outputs: list[Any] = []
        for time in reversed(range(count)) if backwards else range(count):
            states = self.step(projected[time], states, end)
            outputs.append(states[0])
        if not outputs:
            return projected[:, :, : self.hidden_size], states
        return F.stack(outputs[::-1] if backwards else outputs, 0), states

    def _looped(self, x: Any, projected: Any, states: list[Any], end: str, backwards: bool) -> tuple[Any, list[Any]]:
        steps, batch = x.shape[0], x.shape[1]
        states = [F.rebind(state, [batch, self.hidden_size]) for state in states]
        kept = F.buffer_create(BufferType(states[0].dtype, [steps, batch, self.hidden_size], x.device))

        def body(round: Any, *before: Any) -> list[Any]:
            time = F.sub(steps - 1, round) if backwards else round
            after = self.step(projected[time], list(before), end)
            kept[time] = after[0]
            return [round + 1, *after]

        _, *last = F.while_loop([0, *states], lambda round, *_: F.greater(steps, round), body)
        return F.buffer_load(kept), last


class LSTM(Recurrent):
    """Long short-term memory; its state is the pair (h, c). See `Recurrent`."""

    gates = 4
    states = 2

    def step(self, projected: object, states: list[Any], end: str) -> list[Any]:
        """The states after a step."""
        gates = projected + self.recurrent_part(states[0], end)
        i, f, g, o = F.chunk(gates, 4, -1)
        c = F.sigmoid(f) * states[1] + F.sigmoid(i) * F.tanh(g)
        return [F.sigmoid(o) * F.tanh(c), c]


class GRU(Recurrent):
    """Gated recurrent units. See `Recurrent`."""

    gates = 3

    def step(self, projected: object, states: list[Any], end: str) -> list[Any]:
        """The state after a step."""
        r, z, n = F.chunk(projected, 3, -1)
        rh, zh, nh = F.chunk(self.recurrent_part(states[0], end), 3, -1)
        update = F.sigmoid(z + zh)
        new = F.tanh(n + F.sigmoid(r + rh) * nh)
        return [new + update * (states[0] - new)]
