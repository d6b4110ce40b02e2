"""Rotary positions: pairs of numbers turned by angles that grow with the place (Su et al. 2021, RoFormer).

Scalings stretch the angles of models that were trained on shorter texts: linear (Chen et al. 2023), dynamic, YaRN (Peng
et al. 2023), and that of Llama 3.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..arguments import flag_of
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..eager.contexts import defaults
from ..eager.tensor import Tensor
from ..types.dims import Dim, StaticDim
from .linear import size_of
from .module import Module
from .state import misused

Frequencies = np.ndarray[Any, np.dtype[np.float64]]


class Scaling(Protocol):
    """Changes the frequencies of rotary positions."""

    def scaled(self, dim: int, theta: float, length: int) -> tuple[Frequencies, float]:
        """The frequencies of the pairs, and what cosines and sines are multiplied by."""
        ...


def plain_frequencies(dim: int, theta: float) -> Frequencies:
    """theta ** (-2 i / dim) for pair i."""
    powers: Frequencies = np.arange(0, dim, 2).astype(np.float64) / dim
    return np.float64(theta) ** -powers


@dataclass(frozen=True)
class LinearScaling:
    """Divides all frequencies by a factor."""

    factor: float

    def scaled(self, dim: int, theta: float, length: int) -> tuple[Frequencies, float]:
        """See `Scaling`."""
        return plain_frequencies(dim, theta) / self.factor, 1.0


@dataclass(frozen=True)
class DynamicScaling:
    """Raises theta by how much longer the text is than those of the training."""

    factor: float
    original_length: int

    def scaled(self, dim: int, theta: float, length: int) -> tuple[Frequencies, float]:
        """See `Scaling`."""
        longer = self.factor * max(length, self.original_length) / self.original_length - (self.factor - 1)
        return plain_frequencies(dim, theta * longer ** (dim / (dim - 2))), 1.0


@dataclass(frozen=True)
class YarnScaling:
    """Divides low frequencies by a factor, keeps high ones, and goes from one to the other in between.

    Attributes:
        factor: by which low frequencies are divided.
        original_length: of the texts of the training.
        beta_fast, beta_slow: the turns over that length from which on, and up to which, frequencies are high and low.
        attention_factor: of cosines and sines; 0.1 * log(factor) + 1 when left out.
    """

    factor: float
    original_length: int
    beta_fast: float = 32
    beta_slow: float = 1
    attention_factor: float | None = None

    def scaled(self, dim: int, theta: float, length: int) -> tuple[Frequencies, float]:
        """See `Scaling`."""
        first, last = (
            dim * math.log(self.original_length / (turns * 2 * math.pi)) / (2 * math.log(theta))
            for turns in (self.beta_fast, self.beta_slow)
        )
        low, high = max(math.floor(first), 0), min(math.ceil(last), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        plain = plain_frequencies(dim, theta)
        factor = 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0
        return plain / self.factor * ramp + plain * (1 - ramp), self.attention_factor or factor


@dataclass(frozen=True)
class Llama3Scaling:
    """Divides low frequencies by a factor, as Llama 3.1 does.

    Attributes:
        factor: by which low frequencies are divided.
        low_freq_factor, high_freq_factor: the turns over the original length up to which a frequency is low, and from
            which on it is high.
        original_length: of the texts of the training.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_length: int

    def scaled(self, dim: int, theta: float, length: int) -> tuple[Frequencies, float]:
        """See `Scaling`."""
        plain = plain_frequencies(dim, theta)
        turns = self.original_length * plain / (2 * math.pi)
        smooth = np.clip((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0, 1)
        return (1 - smooth) * plain / self.factor + smooth * plain, 1.0


def rotary_table(
    dim: int,
    length: int,
    theta: float = 10000.0,
    scaling: Scaling | None = None,
    *,
    dtype: DType | None = None,
    device: Device | DeviceRef | None = None,
) -> Tensor:
    """Cosines and sines of the angles of each place and pair, of the shape (length, dim / 2, 2)."""
    if dim < 2 or dim % 2:
        raise misused(f"rotary positions turn pairs, and {dim} is odd", "dim", "an even number", dim)
    frequencies, factor = plain_frequencies(dim, theta), 1.0
    if scaling is not None:
        frequencies, factor = scaling.scaled(dim, theta, length)
    angles = np.arange(length)[:, None] * frequencies
    chosen, place = defaults(dtype, device)
    table = np.stack([np.cos(angles), np.sin(angles)], -1) * factor
    return Tensor.constant(table.astype(np.float32), dtype=chosen, device=place)


class RotaryEmbedding(Module[..., Any]):
    """Turns the pairs of numbers of each head by angles that depend on their place.

    Args:
        weight: cosines and sines (places, pairs, 2), as `rotary_table` makes them.
        interleaved: whether neighbours are pairs; else pair i is the numbers i and i + dim / 2.
    """

    def __init__(self, weight: Any, *, interleaved: bool = True) -> None:
        self.weight = weight
        self.interleaved = flag_of("interleaved", interleaved)

    @classmethod
    def of(
        cls,
        dim: int,
        max_sequence_length: int,
        theta: float = 10000.0,
        scaling: Scaling | None = None,
        *,
        interleaved: bool = True,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> RotaryEmbedding:
        """Rotary positions of heads of `dim` numbers, up to a length."""
        sizes = size_of("dim", dim), size_of("max_sequence_length", max_sequence_length)
        table = rotary_table(*sizes, theta, scaling, dtype=dtype, device=device)
        return cls(table, interleaved=interleaved)

    @property
    def dim(self) -> int:
        """How many numbers of a head are turned."""
        return 2 * int(self.weight.shape[1])

    @property
    def max_sequence_length(self) -> int:
        """How many places there are."""
        return int(self.weight.shape[0])

    def forward(self, x: Any, start_pos: int | str | Dim | Any = 0) -> Any:
        """The tensor with its pairs turned.

        Args:
            x: (batch, length, heads, dim); longer heads keep the numbers behind `dim`.
            start_pos: the place of the first row: an int, a dim, or an integer tensor of rank 0; or the place of each
                row, an integer tensor (length) or (batch, length).
        """
        length = x.shape[-3]
        turns = self._turns(length, start_pos)
        size = turns.shape[:-2]
        turns = F.reshape(turns, [*size, 1, self.dim // 2, 2])
        cos, sin = (F.cast(F.squeeze(part, -1), x.dtype) for part in F.split(turns, [1, 1], -1))
        rest = None
        if int(x.shape[-1]) > self.dim:
            x, rest = F.split(x, [self.dim, int(x.shape[-1]) - self.dim], -1)
        if self.interleaved:
            pairs = F.reshape(x, [*x.shape[:-1], self.dim // 2, 2])
            a, b = (F.squeeze(part, -1) for part in F.split(pairs, [1, 1], -1))
            turned = F.reshape(F.stack([a * cos - b * sin, a * sin + b * cos], -1), x.shape)
        else:
            a, b = F.split(x, [self.dim // 2, self.dim // 2], -1)
            turned = F.concat([a * cos - b * sin, a * sin + b * cos], -1)
        return turned if rest is None else F.concat([turned, rest], -1)

    def _turns(self, length: Any, start: Any) -> Any:
        """The rows of the table of all places."""
        if isinstance(start, int) and isinstance(length, int | StaticDim):
            places = self.max_sequence_length
            if not 0 <= start <= places - int(length):
                text = f"{int(length)} rows from place {start} on, and there are {places} places"
                raise misused(text, "start_pos", f"0 to {places - int(length)}", start)
        if isinstance(start, int) and isinstance(self.weight, Tensor) and not F.in_graph_context():
            return F.slice_tensor(self.weight, [slice(start, start + int(length))])
        if getattr(start, "rank", 0) == 0:
            start = F.range(0, length, 1, length, dtype=DType.int64, device=self.weight.device) + _place(start)
        return F.gather(self.weight, start, 0)


def _place(start: object) -> Any:
    """A place that tensors can be added to."""
    if isinstance(start, str | Dim):
        return F.reshape(F.shape_to_tensor([Dim(start)]), [])
    return start
