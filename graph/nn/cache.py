"""Keeps the keys and values of many sequences in pages of one memory.

A page has the keys and values of some neighbouring places of a sequence, for all layers. Sequences share pages: forks
do until one of them writes, and so do sequences that begin with the same tokens, as far as whole pages go. A page that
no sequence has stays known until its room is needed; the one that was released first goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from ..driver.devices import DeviceRef
from ..ops.cache import MOST_NUMBERS, SCALE
from ..ops.operands import SCALED_PAGES
from ..types.tensor_type import BufferType
from .linear import size_of
from .state import misused

CODE = "EK0479"
NO_PAGE = "EK0474"
DTYPES = (DType.float32, DType.float16, DType.bfloat16, DType.float64, *SCALED_PAGES)
LARGEST_TOKEN = (1 << 63) - 1

Array = np.ndarray[Any, Any]
Key = tuple[int, tuple[int, ...]]  # the prefix before a page, and the page's tokens


@dataclass(frozen=True)
class KVCacheParams:
    """What a cache holds for a place of a sequence, and how many places a page has.

    Attributes:
        dtype: of keys and values: float32, float16, bfloat16, float64, or one of 8 bits, int8, float8_e4m3fn or
            float8_e5m2, of which the numbers of a place of a head have a float32 scale.
        n_kv_heads: heads of keys and values.
        head_dim: numbers of a head, 256 at most.
        num_layers: layers of the network.
        page_size: places of a page.
        enable_prefix_caching: whether sequences that begin with the same tokens share pages.

    Raises:
        GraphError: EK0472, a number below 1 or a dtype that caches do not have.
    """

    dtype: DType
    n_kv_heads: int
    head_dim: int
    num_layers: int
    page_size: int = 16
    enable_prefix_caching: bool = True

    def __post_init__(self) -> None:
        for name in ("n_kv_heads", "head_dim", "num_layers", "page_size"):
            size_of(name, getattr(self, name))
        if self.head_dim > MOST_NUMBERS:
            text = f"a head has {self.head_dim} numbers"
            raise misused(text, "head_dim", f"1 to {MOST_NUMBERS}", self.head_dim)
        if self.dtype not in DTYPES:
            names = ", ".join(str(dtype) for dtype in DTYPES)
            raise misused(f"a cache of {self.dtype}", "dtype", f"one of {names}", self.dtype)
        if self.dtype in SCALED_PAGES and self.page_size * self.head_dim % SCALE:
            text = f"{self.page_size} places of {self.head_dim} numbers of {self.dtype} leave their scales unaligned"
            raise misused(
                text, "page_size", f"a number of places whose numbers are a multiple of {SCALE}", self.page_size
            )

    @property
    def page_shape(self) -> list[int]:
        """Keys and values, layers, heads, and places times numbers of a page; scales count as numbers."""
        numbers = self.head_dim + SCALE * (self.dtype in SCALED_PAGES)
        return [2, self.num_layers, self.n_kv_heads, self.page_size * numbers]

    @property
    def bytes_per_page(self) -> int:
        """How much memory a page takes."""
        return int(np.prod(self.page_shape)) * self.dtype.size_in_bytes


@dataclass(frozen=True)
class RaggedBatch:
    """The rows of some sequences behind each other, as `ops.flash_attention_ragged` takes them.

    Attributes:
        offsets: (sequences + 1), where the rows of each begin, and their end.
        lengths: (sequences), how many places each has already.
        table: (sequences, most pages), the numbers of the pages of each.
        positions: (rows), the place of each row in its sequence.
    """

    offsets: Array
    lengths: Array
    table: Array
    positions: Array


@dataclass
class _Held:
    """What a sequence has.

    Attributes:
        pages: their numbers.
        length: how many places are stored.
        tokens: those of the last page, if it is not whole.
        prefix: the number of the prefix of its whole pages.
    """

    pages: list[int] = field(default_factory=list)
    length: int = 0
    tokens: list[int] = field(default_factory=list)
    prefix: int = 0


class PagedKVCacheManager:
    """Says which pages each sequence has, and holds the memory of all.

    A sequence is claimed; room is allocated for rows, which a model stores; then a step says which tokens these were.

        sequence = cache.claim(tokens)
        new = tokens[cache.length(sequence):]
        cache.alloc(sequence, len(new))
        ...  # a model stores the rows of cache.batch([sequence], [len(new)])
        cache.step(sequence, new)
        cache.release(sequence)

    A call that fails leaves everything as it was.

    Args:
        params: what a page holds.
        num_pages: how many pages there are.

    Attributes:
        params: what a page holds.
        pages: the memory (pages, 2, layers, heads, places * numbers).
    """

    @placed
    def __init__(self, params: KVCacheParams, num_pages: int) -> None:
        if not isinstance(params, KVCacheParams):
            raise misused("a cache needs KVCacheParams", "params", "KVCacheParams", type(params).__name__)
        self.params = params
        self.num_pages = size_of("num_pages", num_pages)
        self.pages = Buffer.zeros([self.num_pages, *params.page_shape], params.dtype)
        self._free = list(range(self.num_pages - 1, -1, -1))
        self._counts = [0] * self.num_pages
        self._known: dict[Key, tuple[int, int]] = {}  # the number of the prefix with the page, and the page
        self._keys: dict[int, Key] = {}  # of pages that are known
        self._unused: OrderedDict[int, None] = OrderedDict()  # known pages that no sequence has, oldest first
        self._sequences: dict[int, _Held] = {}
        self._next_sequence, self._next_prefix = 0, 1

    # *** what there is ***

    @property
    def type(self) -> BufferType:
        """The type of the memory, for a graph."""
        return BufferType(self.params.dtype, list(self.pages.shape), DeviceRef.CPU())

    @property
    def sequences(self) -> list[int]:
        """The sequences that are claimed."""
        return list(self._sequences)

    @property
    def pages_in_use(self) -> int:
        """How many pages sequences have; a page that several share counts once."""
        return self.num_pages - self.pages_free

    @property
    def pages_free(self) -> int:
        """How many pages can be allocated; those that are only known are among them."""
        return len(self._free) + len(self._unused)

    @property
    def pages_known(self) -> int:
        """How many pages can be shared by a sequence that begins with their tokens."""
        return len(self._known)

    @placed
    def length(self, sequence: int) -> int:
        """How many places of a sequence are stored."""
        return self._held(sequence).length

    @placed
    def pages_of(self, sequence: int) -> list[int]:
        """The numbers of the pages of a sequence."""
        return list(self._held(sequence).pages)

    # *** the life of a sequence ***

    @placed
    def claim(self, tokens: Sequence[int] = ()) -> int:
        """A new sequence.

        Args:
            tokens: what it is going to begin with. Whole pages that are known to begin so are shared: `length` says
                how many places that gives. The last token is never among them, so that a model has a row to compute.

        Raises:
            GraphError: EK0479, tokens that are not integers from 0 on.
        """
        given = tokens_of(tokens)
        held, size = _Held(), self.params.page_size
        while self.params.enable_prefix_caching and held.length + size < len(given):
            entry = self._known.get((held.prefix, tuple(given[held.length : held.length + size])))
            if entry is None:
                break
            held.prefix, page = entry
            self._use(page)
            held.pages.append(page)
            held.length += size
        return self._added(held)

    @placed
    def fork(self, sequence: int) -> int:
        """A new sequence that begins as another one. They share all pages; the first to write copies the last page."""
        held = self._held(sequence)
        pages = held.pages[: -(-held.length // self.params.page_size)]
        for page in pages:
            self._use(page)
        return self._added(_Held(pages, held.length, list(held.tokens), held.prefix))

    @placed
    def alloc(self, sequence: int, count: int) -> None:
        """Room for `count` rows behind those that are stored.

        Raises:
            GraphError: EK0474, there are not enough pages; nothing has changed then.
        """
        held = self._held(sequence)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise misused(f"room for {count!r} rows", "count", "an integer from 0 on", repr(count), code=CODE)
        size = self.params.page_size
        written = held.length // size
        copied = count > 0 and written < len(held.pages) and self._is_shared(held.pages[written])
        missing = max(-(-(held.length + int(count)) // size) - len(held.pages), 0)
        if missing + copied > self.pages_free:
            raise misused(
                f"{missing + copied} more pages are needed, and {self.pages_free} of {self.num_pages} are free",
                "count",
                f"{self.pages_free} pages at most",
                f"{missing + copied} pages",
                "release a sequence, or make the cache with more pages",
                code=NO_PAGE,
            )
        if copied:
            shared, own = held.pages[written], self._taken()
            memory = self.pages.to_numpy()
            memory[own] = memory[shared]
            held.pages[written] = own
            self._drop(shared)
        held.pages += [self._taken() for _ in range(missing)]

    @placed
    def step(self, sequence: int, tokens: Sequence[int]) -> None:
        """Says that rows were stored, and which tokens they were of.

        Raises:
            GraphError: EK0479, tokens that are not integers from 0 on, or more of them than there is room for.
        """
        held, given = self._held(sequence), tokens_of(tokens)
        room = len(held.pages) * self.params.page_size - held.length
        if len(given) > room:
            text = f"{len(given)} rows are stored, and the sequence has room for {room}"
            raise misused(text, "tokens", f"{room} tokens at most", len(given), "alloc makes room", code=CODE)
        for token in given:
            held.tokens.append(token)
            held.length += 1
            if len(held.tokens) == self.params.page_size:
                self._complete(held)

    @placed
    def release(self, sequence: int) -> None:
        """Gives up a sequence. Whole pages stay known until their room is needed."""
        held = self._held(sequence)
        del self._sequences[sequence]
        for page in reversed(held.pages):  # a page is of no use without those before it, so that it goes first
            self._drop(page)

    @placed
    def batch(self, sequences: Sequence[int], counts: Sequence[int]) -> RaggedBatch:
        """The next rows of some sequences, for which there is room, as arrays.

        Raises:
            GraphError: EK0479, a number of rows for which there is no room, or not one number for each sequence.
        """
        held = [self._held(sequence) for sequence in sequences]
        if len(counts) != len(held) or len(set(sequences)) != len(held):
            text = f"{len(counts)} numbers of rows for {len(set(sequences))} different sequences of {len(held)}"
            raise misused(text, "counts", str(len(held)), len(counts), code=CODE)
        for each, count in zip(held, counts, strict=True):
            room = len(each.pages) * self.params.page_size - each.length
            if not 0 <= count <= room:
                text = f"{count} rows, and the sequence has room for {room}"
                raise misused(text, "counts", f"0 to {room}", count, "alloc makes room", code=CODE)
        table = np.zeros((len(held), max((len(each.pages) for each in held), default=0)), np.uint32)
        for row, each in enumerate(held):
            table[row, : len(each.pages)] = each.pages
        lengths = np.array([each.length for each in held], np.uint32)
        positions = [np.arange(each.length, each.length + count) for each, count in zip(held, counts, strict=True)]
        return RaggedBatch(
            np.cumsum([0, *counts]).astype(np.uint32),
            lengths,
            table,
            np.concatenate([*positions, np.zeros(0, np.int64)]).astype(np.int64),
        )

    # *** pages ***

    def _held(self, sequence: int) -> _Held:
        held = self._sequences.get(sequence) if isinstance(sequence, int | np.integer) else None
        if held is None:
            raise misused(
                f"no sequence {sequence!r} is claimed", "sequence", "a claimed one", repr(sequence), code=CODE
            )
        return held

    def _added(self, held: _Held) -> int:
        number = self._next_sequence
        self._next_sequence += 1
        self._sequences[number] = held
        return number

    def _taken(self) -> int:
        """A page of one's own, whose room may have been that of a known one."""
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._unused.popitem(last=False)
            del self._known[self._keys.pop(page)]
        self._counts[page] = 1
        return page

    def _is_shared(self, page: int) -> bool:
        return self._counts[page] > 1 or page in self._keys

    def _use(self, page: int) -> None:
        self._unused.pop(page, None)
        self._counts[page] += 1

    def _drop(self, page: int) -> None:
        self._counts[page] -= 1
        if self._counts[page] == 0:
            if page in self._keys:
                self._unused[page] = None
            else:
                self._free.append(page)

    def _complete(self, held: _Held) -> None:
        """A page became whole: it can be shared from now on, or is one that is known already."""
        key = held.prefix, tuple(held.tokens)
        held.tokens = []
        if not self.params.enable_prefix_caching:
            return
        number = held.length // self.params.page_size - 1
        own = held.pages[number]
        if key not in self._known:
            self._known[key] = self._next_prefix, own
            self._keys[own] = key
            self._next_prefix += 1
        held.prefix, page = self._known[key]
        if page != own:
            self._use(page)
            held.pages[number] = page
            self._drop(own)


def tokens_of(tokens: Any, vocabulary: int = LARGEST_TOKEN, argument: str = "tokens") -> list[int]:
    """Tokens as integers.

    Raises:
        GraphError: EK0479, something else, or numbers outside of the vocabulary.
    """
    try:
        array = np.asarray(tokens if isinstance(tokens, np.ndarray) else list(tokens))
    except (TypeError, ValueError):  # no row, or rows of different lengths
        text = f"tokens are a row of integers, and not {type(tokens).__name__}"
        raise misused(text, argument, "integers", type(tokens).__name__, code=CODE) from None
    if array.size == 0:
        return []
    if array.ndim != 1 or array.dtype.kind not in "iu":
        text = f"tokens are a row of integers, and these are {array.dtype} of shape {array.shape}"
        raise misused(text, argument, "integers", array.dtype, code=CODE)
    wrong = array[(array < 0) | (array >= vocabulary)]
    if wrong.size:
        text = f"token {wrong[0]} is outside of the vocabulary"
        raise misused(text, argument, f"0 to {vocabulary - 1}", int(wrong[0]), code=CODE)
    return [int(token) for token in array]
