"""Generates tokens for many requests at once, in batches that requests join and leave at each step.

A step computes a row for each sequence that has its prompt behind it, and pieces of the prompts of others, up to a
number of rows. Where pages run out, the youngest request gives up its own, and computes them anew later.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..ir import GraphIR, Node
from ..quantization.encodings import ENCODINGS
from ..types.dims import Dim
from ..types.tensor_type import TensorType
from .cache import CODE, NO_PAGE, PagedKVCacheManager, tokens_of
from .figures import Clock, ServingFigures
from .linear import size_of
from .module import CompiledModule, Module
from .paged import PagedCache
from .rotary import RotaryEmbedding
from .sampling import SamplingParams, sample
from .state import misused

# A product of floats with fewer rows may sum in another order: a step of a model that has one always has as many rows
# and sequences. Products of quantised blocks sum in one order.
LEAST_ROWS = 4
BLOCK_PRODUCTS = frozenset(row.product[1] for row in ENCODINGS.values() if row.activation)


class Tokenizer(Protocol):
    """Makes tokens of a text, and a text of tokens."""

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> Any:
        """The text of tokens."""
        ...


class Bytes:
    """The bytes of a text in UTF-8 are its tokens."""

    def encode(self, text: str) -> list[int]:
        """The bytes of a text."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> bytes:
        """The bytes."""
        return bytes(tokens)


class Request:
    """A prompt, and the tokens that a generator has found for it.

    Attributes:
        prompt: its tokens.
        params: how tokens are chosen.
        new: the tokens so far.
        logprobs: the logarithms of their likelihoods.
        is_finished: whether there will be no more.
        error: why not, if it failed.
        owner: what the requests of a generator have in common.
    """

    def __init__(self, prompt: list[int], params: SamplingParams, owner: object = None) -> None:
        self.prompt, self.params = prompt, params
        self.owner = owner
        self.new: list[int] = []
        self.logprobs: list[float] = []
        self.is_finished = False
        self.error: EinkornError | None = None
        self.sequence: int | None = None
        self.clock = Clock()

    @property
    def tokens(self) -> list[int]:
        """The prompt and what follows it."""
        return self.prompt + self.new

    def __repr__(self) -> str:
        state = "failed" if self.error else "finished" if self.is_finished else "running"
        return f"Request({len(self.prompt)} tokens, {len(self.new)} new, {state})"


class _OpenRequest:
    """A request that is cancelled when nothing reads its tokens any more.

    Attributes:
        request: the prompt, and the tokens so far.
    """

    def __init__(self, generator: Generator, request: Request) -> None:
        self.request = request
        self._generator, self._place = generator, 0
        self._lock = threading.Lock()  # several threads may take tokens of one stream

    def __del__(self) -> None:
        self._generator.cancel(self.request)

    def _next(self) -> int | None:
        with self._lock:
            if not self._generator.advance(self.request, self._place):
                return None
            self._place += 1
            return self.request.new[self._place - 1]


class TokenStream(_OpenRequest, Iterator[int]):
    """The tokens of a request as they come."""

    def __next__(self) -> int:
        token = self._next()
        if token is None:
            raise StopIteration
        return token

    def close(self) -> None:
        """Cancels the request."""
        self._generator.cancel(self.request)


class AsyncTokenStream(_OpenRequest, AsyncIterator[int]):
    """The tokens of a request as they come, for `async for`."""

    async def __anext__(self) -> int:
        token = await asyncio.to_thread(self._next)
        if token is None:
            raise StopAsyncIteration
        return token

    async def aclose(self) -> None:
        """Cancels the request."""
        await asyncio.to_thread(self._generator.cancel, self.request)


class _Step(Module[..., Any]):
    """A model as the generator runs it."""

    def __init__(self, model: Module[..., Any]) -> None:
        self.model = model

    def forward(self, *given: object) -> Any:
        tokens, pages, *batch = given
        return self.model(tokens, PagedCache(pages, *batch))


class Generator:
    """Generates tokens for many requests at once.

    What a request gets depends on its prompt and its parameters alone: neither on the requests of its batch, nor on how
    its prompt is cut into pieces, nor on whether its pages were given up in between.

    Args:
        model: a module whose `forward(tokens, cache)` takes the tokens (rows) of a batch and a `PagedCache`, and gives
            the logits (sequences, vocabulary) of `cache.last_rows`; see docs/serving.md.
        cache: the pages; those of sequences that were claimed elsewhere stay as they are.
        tokenizer: `bytes`, or anything with `encode` and `decode`.
        max_batch_size: how many requests run at once.
        tokens_per_step: how many rows a step computes at most; at least as many as requests run.
        max_length: how many tokens a sequence has at most; never more than the pages, and the rotary positions of the
            model, have room for.
    """

    @placed
    def __init__(
        self,
        model: Module[..., Any],
        cache: PagedKVCacheManager,
        tokenizer: Any = bytes,
        *,
        max_batch_size: int = 32,
        tokens_per_step: int = 256,
        max_length: int | None = None,
    ) -> None:
        if not isinstance(cache, PagedKVCacheManager):
            raise misused("a generator needs a cache", "cache", "PagedKVCacheManager", type(cache).__name__)
        self.cache = cache
        self.tokenizer: Tokenizer = Bytes() if tokenizer is bytes else tokenizer
        self.max_batch_size = size_of("max_batch_size", max_batch_size)
        self.tokens_per_step = size_of("tokens_per_step", tokens_per_step)
        if self.tokens_per_step < self.max_batch_size:
            text = f"{self.max_batch_size} requests need as many rows a step, and {self.tokens_per_step} are computed"
            raise misused(text, "tokens_per_step", f"{self.max_batch_size} or more", self.tokens_per_step)
        self._compiled = _compiled(model, cache)
        tables = [each for _, each in model.descendants if isinstance(each, RotaryEmbedding)]
        rooms = [cache.num_pages * cache.params.page_size, *(each.max_sequence_length for each in tables)]
        self.max_length = min(rooms if max_length is None else [size_of("max_length", max_length), *rooms])
        self.vocabulary = int(self._compiled.model.output_metadata[0].shape[1] or 0)
        self._least_rows = _least_rows(self._compiled.model.ir)
        self._running: list[Request] = []  # the oldest first
        self._waiting: deque[Request] = deque()
        self._figures = ServingFigures()
        self._cancelled: list[Request] = []
        self._owner = object()
        self._is_stepping = False
        self._lock = threading.RLock()

    # *** requests ***

    @placed
    def submit(self, prompt: str | bytes | Sequence[int], params: SamplingParams | None = None) -> Request:
        """A request that steps work on.

        Raises:
            GraphError: EK0479, a prompt without tokens, with tokens outside of the vocabulary, or of more tokens than
                a sequence has.
        """
        chosen = SamplingParams() if params is None else params
        if not isinstance(chosen, SamplingParams):
            text = "a request needs SamplingParams"
            raise misused(text, "params", "SamplingParams", type(params).__name__, code=CODE)
        given = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        tokens = tokens_of(given, self.vocabulary, "prompt")
        if not 1 <= len(tokens) < self.max_length:
            text = f"a prompt of {len(tokens)} tokens"
            wanted = f"1 to {self.max_length - 1} tokens"
            raise misused(text, "prompt", wanted, len(tokens), code=CODE)
        request = Request(tokens, chosen, self._owner)
        with self._lock:
            if chosen.max_new_tokens == 0:
                request.is_finished = True
            else:
                self._waiting.append(request)
        return request

    @placed
    def cancel(self, request: Request) -> None:
        """Ends a request, and frees its pages.

        Raises:
            GraphError: EK0479, something else than a request of this generator.
        """
        self._check(request)
        with self._lock:
            if self._is_stepping:  # a stream is collected in the middle of a step
                self._cancelled.append(request)
            else:
                self._finish(request)

    def stream(self, prompt: str | bytes | Sequence[int], params: SamplingParams | None = None) -> TokenStream:
        """The tokens behind a prompt, one after the other; a loop that is left cancels the request."""
        return TokenStream(self, self.submit(prompt, params))

    def stream_async(
        self, prompt: str | bytes | Sequence[int], params: SamplingParams | None = None
    ) -> AsyncTokenStream:
        """As `stream`, for `async for`; steps run in other threads."""
        return AsyncTokenStream(self, self.submit(prompt, params))

    @placed
    def generate(
        self, prompts: Sequence[Any], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Any]:
        """The texts behind some prompts, which run together; parameters are those of all, or one for each.

        Raises:
            GraphError: EK0479 one text instead of a sequence, another number of parameters than of prompts, and the
                errors of `submit` and `advance`.
        """
        if isinstance(prompts, str | bytes):
            text = "prompts are a sequence of texts, and this is a text"
            raise misused(text, "prompts", "a list", type(prompts).__name__, "generate([prompt])", code=CODE)
        chosen = SamplingParams() if params is None else params
        each = [chosen] * len(prompts) if isinstance(chosen, SamplingParams) else list(chosen)
        if len(each) != len(prompts):
            text = f"{len(each)} parameters for {len(prompts)} prompts"
            raise misused(text, "params", str(len(prompts)), len(each), code=CODE)
        requests: list[Request] = []
        try:
            for prompt, one in zip(prompts, each, strict=True):
                requests.append(self.submit(prompt, one))
            for request in requests:
                while self.advance(request, len(request.new)):
                    pass
        finally:
            for request in requests:
                self.cancel(request)
        return [self.tokenizer.decode(request.new) for request in requests]

    @placed
    def advance(self, request: Request, place: int) -> bool:
        """Steps until a request has a token at a place; whether it gets one.

        Raises:
            GraphError: EK0474 the request needs more pages than there are, EK0479 its logits allow no token, or it is
                not one of this generator.
        """
        self._check(request)
        while True:
            with self._lock:
                if len(request.new) > place:
                    return True
                if request.error is not None:
                    raise request.error
                if request.is_finished:
                    return False
                self.step()

    @property
    def figures(self) -> ServingFigures:
        """How fast tokens came, and how many pages are in use."""
        with self._lock:
            return self._figures.now(self.cache, len(self._running), len(self._waiting))

    def _check(self, request: Request) -> None:
        """A request of this generator is passed."""
        if not isinstance(request, Request) or request.owner is not self._owner:
            got = "a request of another generator" if isinstance(request, Request) else type(request).__name__
            raise misused("a generator works on its own requests", "request", "one that submit gave", got, code=CODE)

    # *** steps ***

    @placed
    def step(self) -> int:
        """One step for all requests; gives how many rows were computed."""
        with self._lock:
            self._is_stepping = True
            try:
                return self._step()
            finally:
                self._is_stepping = False
                while self._cancelled:
                    self._finish(self._cancelled.pop())

    def _step(self) -> int:
        begun = time.perf_counter()
        while self._waiting and len(self._running) < self.max_batch_size:
            request = self._waiting.popleft()
            request.sequence = self.cache.claim(request.tokens)
            self._running.append(request)
        planned = self._planned()
        if not planned:
            return 0
        try:
            logits = self._run(planned)
        except EinkornError as error:  # a model that fails for one of them fails for all
            for request, _ in planned:
                self._finish(request, error)
            raise
        done = [
            (row, request) for row, (request, _) in enumerate(planned) if self._stored(request) == len(request.tokens)
        ]
        if done:
            self._choose(logits, done)
        self._figures.add_step(time.perf_counter() - begun, len(done))
        return sum(len(tokens) for _, tokens in planned)

    def _stored(self, request: Request) -> int:
        return 0 if request.sequence is None else self.cache.length(request.sequence)

    def _planned(self) -> list[tuple[Request, list[int]]]:
        """The requests of a step and their tokens, for which there is room; the youngest give up theirs."""
        left = self.tokens_per_step - len(self._running)
        planned: list[tuple[Request, list[int]]] = []
        for request in list(self._running):
            if request.sequence is None:
                continue  # it gave up its pages
            pending = request.tokens[self._stored(request) :][: 1 + max(left, 0)]
            if self._has_room(request, len(pending)):
                left -= len(pending) - 1
                planned.append((request, pending))
        return planned

    def _has_room(self, request: Request, count: int) -> bool:
        """Whether a request got room; younger ones have given up theirs for it."""
        while request.sequence is not None:
            try:
                self.cache.alloc(request.sequence, count)
                return True
            except EinkornError as error:
                if error.code != NO_PAGE:
                    raise
                youngest = self._running[-1]
                if youngest is request and len(self._running) == 1:
                    self._finish(request, error)
                else:
                    self._give_up(youngest)
        return False

    def _give_up(self, request: Request) -> None:
        """The request waits again, before all that wait, and has no pages."""
        self._running.remove(request)
        self._release(request)
        self._waiting.appendleft(request)
        self._figures.preemptions += 1

    def _run(self, planned: list[tuple[Request, list[int]]]) -> Any:
        """The logits of the last row of each request, whose rows are in the cache then."""
        counts = [len(tokens) for _, tokens in planned]
        batch = self.cache.batch([_sequence(request) for request, _ in planned], counts)
        rows, sequences = sum(counts), len(planned)
        more, others = (max(self._least_rows - count, 0) for count in (rows, sequences))
        tokens = np.array([token for _, some in planned for token in some] + [0] * more, np.int64)
        logits = self._compiled(
            tokens,
            self.cache.pages,
            np.concatenate([batch.offsets, np.full(others, rows, np.uint32)]),
            np.concatenate([batch.lengths, np.zeros(others, np.uint32)]),
            np.concatenate([batch.table, np.zeros((others, batch.table.shape[1]), np.uint32)]),
            np.concatenate([batch.positions, np.zeros(more, np.int64)]),
            np.concatenate([batch.offsets[1:].astype(np.int64) - 1, np.zeros(others, np.int64)]),
        )
        for request, some in planned:
            self.cache.step(_sequence(request), some)
        return logits.numpy()

    def _choose(self, logits: Any, done: list[tuple[int, Request]]) -> None:
        """The next token of each request whose tokens are all in the cache."""
        requests = [request for _, request in done]
        tokens, logprobs = sample(
            np.ascontiguousarray(logits[[row for row, _ in done]]),
            [request.params for request in requests],
            [len(request.new) for request in requests],
            history=[request.tokens for request in requests],
        )
        for request, token, logprob in zip(requests, tokens.tolist(), logprobs.tolist(), strict=True):
            if token < 0:
                text = "the logits of a request allow no token; they may be NaN"
                self._finish(request, misused(text, "model", "finite logits", "none", code=CODE))
                continue
            request.new.append(token)
            request.logprobs.append(logprob)
            self._figures.add_token(request.clock)
            if request.params.is_finished(request.new, self.tokenizer.decode) or len(request.tokens) >= self.max_length:
                self._finish(request)

    def _finish(self, request: Request, error: EinkornError | None = None) -> None:
        if not request.is_finished:
            request.is_finished, request.error = True, error
            self._running = [each for each in self._running if each is not request]
            self._waiting = deque(each for each in self._waiting if each is not request)
            self._release(request)

    def _release(self, request: Request) -> None:
        if request.sequence is not None:
            self.cache.release(request.sequence)
            request.sequence = None


def _sequence(request: Request) -> int:
    assert request.sequence is not None
    return request.sequence


def _least_rows(ir: GraphIR) -> int:
    """How many rows a step has at least, so that no result depends on how many there are."""
    nodes = [item for item in ir.nodes if isinstance(item, Node)]
    products = (node for node in nodes if "matmul" in node.name and node.name not in BLOCK_PRODUCTS)
    return LEAST_ROWS if any(products) or not all(node.kernel.shipped for node in nodes) else 1


def _compiled(model: Module[..., Any], cache: PagedKVCacheManager) -> CompiledModule[Any]:
    """The model for batches of any size."""
    if not isinstance(model, Module):
        raise misused("a generator needs a module", "model", "Module", type(model).__name__)
    cpu, rows, sequences = DeviceRef.CPU(), Dim("rows"), Dim("sequences")
    return _Step(model).compile(
        TensorType(DType.int64, [rows], cpu),
        cache.type,
        TensorType(DType.uint32, [sequences + 1], cpu),
        TensorType(DType.uint32, [sequences], cpu),
        TensorType(DType.uint32, [sequences, "most_pages"], cpu),
        TensorType(DType.int64, [rows], cpu),
        TensorType(DType.int64, [sequences], cpu),
    )
