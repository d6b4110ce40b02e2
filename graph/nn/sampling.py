"""How tokens are chosen, for each sequence of a batch by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..eager import functional as F
from ..eager.tensor import Tensor
from .state import misused

LARGEST_SEED = (1 << 63) - 1
MOST_EMPTY = 8  # tokens without text in the middle of a text that ends a sequence


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of a sequence are chosen.

    Attributes:
        temperature: what logits are divided by; 0 takes the likeliest token.
        top_k: how many of the likeliest tokens are kept; 0 for all.
        top_p: of these, the likeliest are kept until they have this share.
        min_p: of these, the ones of at least this share of the best one's likelihood are kept.
        repetition_penalty: what positive logits of earlier tokens are divided by, and others multiplied by.
        frequency_penalty: what is subtracted for each time that a token has occurred.
        presence_penalty: what is subtracted for a token that has occurred.
        seed: draws depend on it and on the step, not on the batch.
        stop: tokens, sequences of tokens, and texts that end a sequence; it has them then. A text may begin and end
            within tokens.
        max_new_tokens: how many tokens a sequence gets at most; None for any number.

    Raises:
        GraphError: EK0473, a number outside of its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0
    stop: tuple[int | str | tuple[int, ...], ...] = ()
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        self._check("temperature", 0, math.inf)
        self._check("top_p", 0, 1, open_below=True)
        self._check("min_p", 0, 1)
        self._check("repetition_penalty", 0, math.inf, open_below=True)
        self._check("frequency_penalty", -math.inf, math.inf)
        self._check("presence_penalty", -math.inf, math.inf)
        self._check("top_k", 0, (1 << 31) - 1, whole=True)
        self._check("seed", -LARGEST_SEED, LARGEST_SEED, whole=True)
        if self.max_new_tokens is not None:
            self._check("max_new_tokens", 0, LARGEST_SEED, whole=True)
        for end in self.stop if isinstance(self.stop, tuple) else [None]:
            tokens = end if isinstance(end, tuple) else (end,)
            is_text = isinstance(end, str) and end
            if not is_text and not (tokens and all(map(_is_token, tokens))):
                wanted = "a tuple of tokens, of tuples of tokens, and of texts"
                raise misused(f"stop is {self.stop!r}", "stop", wanted, repr(self.stop), code="EK0473")

    def _check(self, name: str, low: float, high: float, *, open_below: bool = False, whole: bool = False) -> None:
        value = getattr(self, name)
        kinds = int if whole else int | float
        finite = isinstance(value, kinds) and not isinstance(value, bool) and (whole or math.isfinite(value))
        if not finite or not low <= value <= high or (open_below and value == low):
            kind = "a whole number" if whole else "a number"
            wanted = f"{kind} {'above' if open_below else 'from'} {low} {'up ' if not open_below else ''}to {high}"
            raise misused(f"{name} is {value!r}", name, wanted, repr(value), code="EK0473")

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the logits."""
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != (1, 0, 0)

    def is_finished(self, tokens: Sequence[int], decode: Callable[[Sequence[int]], Any] | None = None) -> bool:
        """Whether the new tokens of a sequence end it; `decode` makes a text of tokens, for texts in `stop`."""
        if self.max_new_tokens is not None and len(tokens) >= self.max_new_tokens:
            return True
        return any(_ends(tokens, each, decode) for each in self.stop)


def _ends(tokens: Sequence[int], end: int | str | tuple[int, ...], decode: Callable[..., Any] | None) -> bool:
    if not isinstance(end, str):
        wanted = end if isinstance(end, tuple) else (end,)
        return tuple(tokens[-len(wanted) :]) == wanted
    if decode is None:
        raise misused(f"tokens have no text {end!r}", "decode", "the decode of a tokenizer", None, code="EK0473")
    within = end.encode()
    text = decode(tokens[-len(within) - MOST_EMPTY :])  # a token has a byte or more of a text, but for special ones
    return within in (text if isinstance(text, bytes) else str(text).encode())


def _is_token(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def sample(
    logits: object,
    params: SamplingParams | Sequence[SamplingParams],
    step: int | Sequence[int],
    *,
    history: Sequence[Sequence[int]] | None = None,
    mask: object = None,
) -> tuple[Tensor, Tensor]:
    """The next token of each sequence, and the logarithm of its likelihood.

    Args:
        logits: (sequences, vocabulary), a tensor or an array.
        params: how tokens are chosen, for all sequences or for each.
        step: the number of the token in its sequence, for all or for each.
        history: the earlier tokens of each sequence, where there are penalties.
        mask: (sequences, vocabulary) or (vocabulary): bool, True where a token may be chosen; or floats that are added.

    Returns:
        The tokens (sequences) as int32, -1 where none may be chosen, and float32.

    Raises:
        GraphError: EK0473 as many params, steps or histories as there are no sequences, and tokens of a history outside
            of the vocabulary.
    """
    x = logits if isinstance(logits, Tensor) else Tensor.from_dlpack(np.ascontiguousarray(logits))
    if x.rank != 2:
        text = f"logits have two axes, and these have {x.rank}"
        raise misused(text, "logits", "(sequences, vocabulary)", x.shape, code="EK0473")
    rows, vocabulary = (int(size) for size in x.shape)
    each = [params] * rows if isinstance(params, SamplingParams) else list(params)
    for one in each:
        if not isinstance(one, SamplingParams):
            text = "parameters of a sequence are SamplingParams"
            raise misused(text, "params", "SamplingParams", type(one).__name__, code="EK0473")
    steps = list(integers("step", step if isinstance(step, Sequence) or np.ndim(step) else [step] * rows))
    for name, values in (("params", each), ("step", steps), ("history", [] if history is None else list(history))):
        if len(values) != rows and (name != "history" or history is not None):
            raise misused(f"{name}: {len(values)} for {rows} sequences", name, str(rows), len(values), code="EK0473")
    if history is not None and any(one.has_penalties for one in each):
        penalties = (_numbers(each, f"{name}_penalty") for name in ("repetition", "frequency", "presence"))
        x = F.penalize_tokens(x, _padded(history, vocabulary), *penalties)
    if mask is not None:
        allowed = mask if isinstance(mask, Tensor) else Tensor.from_dlpack(np.ascontiguousarray(mask))
        x = F.where(allowed, x, -math.inf) if allowed.dtype is DType.bool else x + allowed
    return F.sample_tokens(
        x,
        _numbers(each, "temperature"),
        _numbers(each, "top_k", np.int32),
        _numbers(each, "top_p"),
        _numbers(each, "min_p"),
        _numbers(each, "seed", np.int64),
        Tensor.from_numpy(np.array(steps, np.int64)),
    )


def integers(argument: str, values: object) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A row of int64.

    Raises:
        GraphError: EK0473, something else than integers.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.array([None])
    if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
        text = f"{argument}: integers are expected, and these are {array.dtype} of shape {array.shape}"
        raise misused(text, argument, "a row of integers", array.dtype, code="EK0473")
    return array.astype(np.int64).reshape(-1)


def _numbers(params: Sequence[SamplingParams], name: str, dtype: Any = np.float32) -> Tensor:
    return Tensor.from_numpy(np.array([getattr(one, name) for one in params], dtype))


def _padded(history: Sequence[Sequence[int]], vocabulary: int) -> Tensor:
    """The tokens of each sequence, filled up with -1."""
    rows = [integers(f"history[{number}]", tokens) for number, tokens in enumerate(history)]
    for number, tokens in enumerate(rows):
        wrong = tokens[(tokens < 0) | (tokens >= vocabulary)]
        if wrong.size:
            text = f"history[{number}] has the token {wrong[0]}, and the vocabulary has {vocabulary}"
            raise misused(text, f"history[{number}]", f"0 to {vocabulary - 1}", int(wrong[0]), code="EK0473")
    filled = np.full((len(rows), max((len(tokens) for tokens in rows), default=0)), -1, np.int32)
    for number, tokens in enumerate(rows):
        filled[number, : len(tokens)] = tokens
    return Tensor.from_numpy(filled)
