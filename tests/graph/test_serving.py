"""Keys and values in pages, and generators, against attention in float64 over random schedules."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn.errors import EinkornError
from einkorn.graph import DeviceRef, Dim, DType, Graph, InferenceSession, TensorType, nn, ops
from einkorn.graph.driver.buffer import Buffer
from einkorn.graph.nn import paged
from einkorn.graph.quantization import QuantizationEncoding

HEADS, SHARED, SIZE, LAYERS, PAGE = 4, 2, 8, 2, 4
CPU = DeviceRef.CPU()
NUMPY = {DType.float32: np.float32, DType.float16: np.float16, DType.bfloat16: ml_dtypes.bfloat16}
SCALED = {DType.int8: 127, DType.float8_e4m3fn: 448, DType.float8_e5m2: 57344}


def rounded(x: Any, dtype: DType) -> Any:
    """What pages of a dtype keep of numbers, as float64."""
    if dtype not in SCALED:
        return x.astype(NUMPY.get(dtype, np.float64)).astype(np.float64)
    scales = np.abs(x.astype(np.float32)).max(-1, keepdims=True) / np.float32(SCALED[dtype])
    parts = x.astype(np.float32) * np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    whole = np.round(parts) if dtype is DType.int8 else parts.astype(dtype.to_numpy()).astype(np.float64)
    return whole * scales.astype(np.float64)


def params(dtype: DType = DType.float32, page_size: int = PAGE, **more: Any) -> nn.KVCacheParams:
    return nn.KVCacheParams(dtype, SHARED, SIZE, LAYERS, page_size, **more)


def attending(cache: nn.PagedKVCacheManager, threads: int | None = None, window: int | None = None) -> Any:
    """Stores keys and values of the last layer, and attends to those of all places."""
    rows, sequences = Dim("rows"), Dim("sequences")

    def forward(q: Any, k: Any, v: Any, pages: Any, offsets: Any, lengths: Any, table: Any) -> Any:
        batch = (offsets, lengths, table)
        ops.kv_cache_store(pages, k, v, *batch, layer=1)
        return ops.flash_attention_ragged(q, pages, *batch, layer=1, window=window)

    kinds = [TensorType(DType.float32, [rows, heads, SIZE], CPU) for heads in (HEADS, SHARED, SHARED)]
    integers: list[list[Any]] = [[sequences + 1], [sequences], [sequences, "most"]]
    graph = Graph(
        "attending",
        forward=forward,
        input_types=[*kinds, cache.type, *(TensorType(DType.uint32, sizes, CPU) for sizes in integers)],
    )
    return InferenceSession(num_threads=threads).load(graph)


NUMBERS = np.random.default_rng(0).standard_normal((3, 16, 64, SHARED, SIZE)).astype(np.float32)


def rows_of(tokens: list[int], first: int, part: int) -> Any:
    """Keys or values of tokens: they depend on token and place."""
    return np.array([NUMBERS[part, token, first + i] for i, token in enumerate(tokens)]).reshape(-1, SHARED, SIZE)


def expected(query: Any, tokens: list[int], dtype: DType) -> Any:
    """Attention of the last rows of a sequence, in float64."""
    stored = [rounded(rows_of(tokens, 0, part), dtype).repeat(2, 1) for part in (0, 1)]
    collected = np.empty(query.shape)
    for row in range(len(query)):
        k, v = (x[: len(tokens) - len(query) + row + 1] for x in stored)
        scores = np.einsum("hd,nhd->hn", query[row].astype(np.float64), k) / math.sqrt(SIZE)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        collected[row] = np.einsum("hn,nhd->hd", powers / powers.sum(1, keepdims=True), v)
    return collected


class Schedule:
    """Random calls of a cache, with what each sequence has to hold."""

    def __init__(self, model: Any, cache: nn.PagedKVCacheManager, seed: int) -> None:
        self.model, self.cache, self.rng = model, cache, np.random.default_rng(seed)
        self.held: dict[int, list[int]] = {}

    def run(self, calls: int) -> None:
        for _ in range(calls):
            choice = self.rng.integers(10)
            if choice < 2 or not self.held:
                tokens = self.rng.integers(0, 2, self.rng.integers(1, 14)).tolist()
                sequence = self.cache.claim(tokens)
                self.held[sequence] = tokens[: self.cache.length(sequence)]
                assert len(self.held[sequence]) % self.cache.params.page_size == 0
                self.extend({sequence: tokens[self.cache.length(sequence) :]})
            elif choice == 2:
                source = int(self.rng.choice(list(self.held)))
                self.held[self.cache.fork(source)] = list(self.held[source])
            elif choice == 3:
                sequence = int(self.rng.choice(list(self.held)))
                self.cache.release(sequence)
                del self.held[sequence]
            else:
                chosen = [sequence for sequence in self.held if self.rng.random() < 0.7]
                self.extend({s: self.rng.integers(0, 2, self.rng.integers(0, 4)).tolist() for s in chosen})
            self.check()

    def extend(self, new: dict[int, list[int]]) -> None:
        """Attends to what is there and to new rows, as far as there is room."""
        new = {s: some for s, some in new.items() if len(self.held[s]) + len(some) <= 40}
        for sequence in list(new):
            before = self.cache.pages_of(sequence), self.cache.pages_free
            try:
                self.cache.alloc(sequence, len(new[sequence]))
            except EinkornError as error:
                assert error.code == "EK0474"
                assert before == (self.cache.pages_of(sequence), self.cache.pages_free)
                del new[sequence]
        batch = self.cache.batch(list(new), [len(some) for some in new.values()])
        query = self.rng.standard_normal((len(batch.positions), HEADS, SIZE)).astype(np.float32)
        k, v = (
            np.concatenate([np.zeros((0, SHARED, SIZE), np.float32)]
                           + [rows_of(some, len(self.held[s]), part) for s, some in new.items()])
            for part in (0, 1)
        )  # fmt: skip
        actual = self.model(query, k.astype(np.float32), v.astype(np.float32), self.cache.pages,
                           batch.offsets, batch.lengths, batch.table)[0].to_numpy()  # fmt: skip
        for i, (sequence, some) in enumerate(new.items()):
            self.cache.step(sequence, some)
            self.held[sequence] += some
            rows = slice(batch.offsets[i], batch.offsets[i + 1])
            wanted = expected(query[rows], self.held[sequence], self.cache.params.dtype)
            np.testing.assert_allclose(actual[rows], wanted, rtol=0, atol=2e-6)

    def check(self) -> None:
        """Each sequence has its numbers, and each page is counted."""
        memory = self.cache.pages.to_numpy()
        assert set(self.cache.sequences) == set(self.held)
        size = self.cache.params.page_size
        for sequence, tokens in self.held.items():
            assert self.cache.length(sequence) == len(tokens)
            pages = self.cache.pages_of(sequence)
            for part in (0, 1):
                wanted = rounded(rows_of(tokens, 0, part), self.cache.params.dtype)
                shape = (SHARED, size, SIZE) if part else (SHARED, SIZE, size)
                head = memory[:, part, 1]
                actual = head[..., : size * SIZE].reshape(-1, *shape).astype(np.float64)
                actual = actual if part else actual.swapaxes(-1, -2)  # the keys of a page lie number by number
                if self.cache.params.dtype in SCALED:
                    actual = actual * np.ascontiguousarray(head[..., size * SIZE :]).view(np.float32)[..., None]
                stored = [actual[pages[i // size], :, i % size] for i in range(len(tokens))]
                np.testing.assert_allclose(np.array(stored).reshape(wanted.shape), wanted, rtol=2e-7, atol=0)
        used = {page for sequence in self.held for page in self.cache.pages_of(sequence)}
        assert self.cache.pages_in_use == len(used)


@pytest.mark.parametrize(
    ("dtype", "page_size"),
    [
        (DType.float32, 4),
        (DType.float16, 3),
        (DType.bfloat16, 1),
        (DType.int8, 4),
        (DType.float8_e4m3fn, 2),
        (DType.float8_e5m2, 3),
    ],
)
def test_random_schedules_attend_to_what_each_sequence_has(dtype: DType, page_size: int) -> None:
    made = params(dtype, page_size)
    model = attending(nn.PagedKVCacheManager(made, 24))
    for seed in range(25 if dtype in SCALED else 70):
        Schedule(model, nn.PagedKVCacheManager(made, 24), seed).run(12)


@pytest.mark.parametrize(
    ("heads", "shared", "size", "page_size", "window", "dtype"),
    [
        (6, 2, 20, 5, None, DType.float32),
        (40, 2, 7, 16, 9, DType.float32),
        (1, 1, 1, 100, 70, DType.bfloat16),
        (3, 3, 256, 64, None, DType.float16),
        (4, 1, 33, 1, 66, DType.float64),
    ],
)
def test_rows_get_the_same_bits_however_they_are_cut(
    heads: int, shared: int, size: int, page_size: int, window: int | None, dtype: DType
) -> None:
    """A row's result does not depend on the others, even where the numbers of later places are NaN."""
    made = nn.KVCacheParams(dtype, shared, size, 1, page_size)
    cache, length = nn.PagedKVCacheManager(made, 320), 150
    graph = Graph(
        "rows",
        forward=lambda q, k, v, pages, *batch: (
            ops.kv_cache_store(pages, k, v, *batch),
            ops.flash_attention_ragged(q, pages, *batch, window=window),
        )[1],
        input_types=[
            *(TensorType(dtype, ["rows", number, size], CPU) for number in (heads, shared, shared)),
            cache.type,
            *(TensorType(DType.uint32, sizes, CPU) for sizes in ([Dim("s") + 1], ["s"], ["s", "most"])),
        ],
    )
    model, rng = InferenceSession().load(graph), np.random.default_rng(3)
    kind = ml_dtypes.bfloat16 if dtype is DType.bfloat16 else dtype.to_numpy()
    q, k, v = (rng.standard_normal((length, number, size)).astype(kind) for number in (heads, shared, shared))
    k[140:], v[140:] = np.nan, np.inf

    def in_pieces(pieces: list[int]) -> Any:
        first, other = cache.claim(), cache.claim()
        collected = []
        for count in pieces:
            cache.alloc(first, count)
            cache.alloc(other, 1)
            batch = cache.batch([other, first], [1, count])
            rows = slice(cache.length(first), cache.length(first) + count)
            given = (np.concatenate([x[:1], x[rows]]) for x in (q, k, v))
            tables = (batch.offsets, batch.lengths, batch.table)
            collected.append(model(*given, cache.pages, *tables)[0].to_numpy()[1:])
            cache.step(first, [0] * count)
            cache.step(other, [1])
        cache.release(first)
        cache.release(other)
        return np.concatenate(collected)[:140]

    whole = in_pieces([length])
    for pieces in ([1] * length, [63, 1, 64, 3, 19], [7] * 21 + [3]):
        assert np.array_equal(in_pieces(pieces).view(np.uint8), whole.view(np.uint8))
    wanted = attended(q[:140], k[:140], v[:140], window)
    tolerance = {DType.float32: 2e-6, DType.float64: 1e-14, DType.float16: 2e-3, DType.bfloat16: 1.6e-2}[dtype]
    np.testing.assert_allclose(whole.astype(np.float64), wanted, rtol=0, atol=tolerance)


def attended(q: Any, k: Any, v: Any, window: int | None) -> Any:
    """Causal attention in float64."""
    wide = [x.astype(np.float64) for x in (q, k, v)]
    group, places = q.shape[1] // k.shape[1], np.arange(len(q))
    scores = np.einsum("ihd,jhd->hij", wide[0], wide[1].repeat(group, 1)) / math.sqrt(q.shape[2])
    away = places[:, None] - places
    scores[:, (away < 0) | (away >= (window or len(q)))] = -math.inf
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", powers / powers.sum(-1, keepdims=True), wide[2].repeat(group, 1))


@pytest.mark.parametrize(
    ("dtype", "window"),
    [
        (DType.float32, None),
        (DType.float32, 700),
        (DType.int8, None),
        (DType.float8_e4m3fn, None),
        (DType.float8_e5m2, 520),
    ],
)
def test_spans_of_long_sequences_have_the_same_bits_in_any_batch_and_on_any_threads(
    dtype: DType, window: int | None
) -> None:
    """Few rows share their spans among tasks, many rows do not."""
    length, rng = 1300, np.random.default_rng(4)
    q, k, v = (rng.standard_normal((length, heads, SIZE)).astype(np.float32) for heads in (HEADS, SHARED, SHARED))
    made = nn.KVCacheParams(dtype, SHARED, SIZE, 2, 16)
    results = []
    for threads, pieces in ((1, [length]), (1, [1026, 1, 3, 9, *[1] * 4, 257]), (2, [600, 8, *[1] * 20, 672])):
        cache = nn.PagedKVCacheManager(made, 90)
        model, sequence, parts = attending(cache, threads, window), cache.claim(), []
        for count in pieces:
            cache.alloc(sequence, count)
            batch = cache.batch([sequence], [count])
            rows = slice(cache.length(sequence), cache.length(sequence) + count)
            tables = (batch.offsets, batch.lengths, batch.table)
            parts.append(model(q[rows], k[rows], v[rows], cache.pages, *tables)[0].to_numpy())
            cache.step(sequence, [0] * count)
        results.append(np.concatenate(parts))
    for other in results[1:]:
        assert np.array_equal(other.view(np.uint32), results[0].view(np.uint32))
    wanted = attended(q, rounded(k, dtype), rounded(v, dtype), window)
    np.testing.assert_allclose(results[0], wanted, rtol=0, atol=2e-6)


def test_pages_are_shared_by_equal_beginnings_and_the_oldest_go_first() -> None:
    cache = nn.PagedKVCacheManager(params(), 4)
    first = cache.claim(range(9))
    cache.alloc(first, 9)
    cache.step(first, range(9))
    second = cache.claim([*range(8), 99])
    assert cache.length(second) == 8 and cache.pages_of(second) == cache.pages_of(first)[:2]
    assert cache.length(cache.claim(range(8))) == 4  # the last token is left to compute
    for sequence in cache.sequences:
        cache.release(sequence)
    assert (cache.pages_in_use, cache.pages_free, cache.pages_known) == (0, 4, 2)
    other = cache.claim([7])
    cache.alloc(other, 12)  # takes the room of the page that comes last in the prefix
    assert cache.pages_known == 1
    assert cache.length(cache.claim(range(9))) == 4


def test_a_fork_copies_the_last_page_when_it_writes() -> None:
    cache = nn.PagedKVCacheManager(params(enable_prefix_caching=False), 4)
    first = cache.claim()
    cache.alloc(first, 6)
    cache.step(first, range(6))
    cache.pages.to_numpy()[...] = 7
    fork = cache.fork(first)
    assert cache.pages_in_use == 2
    cache.alloc(fork, 1)
    assert cache.pages_of(fork)[0] == cache.pages_of(first)[0] and cache.pages_of(fork)[1] != cache.pages_of(first)[1]
    assert (cache.pages.to_numpy()[cache.pages_of(fork)] == 7).all()
    own = cache.pages_of(first)
    cache.alloc(first, 1)
    assert cache.pages_of(first) == own  # no other sequence has its last page now
    cache.release(first)
    assert cache.pages_in_use == 2


# *** generators ***


class Layer(nn.Module):
    def __init__(self, number: int, rope: nn.RotaryEmbedding, dim: int, hidden: int) -> None:
        self.number = number
        self.norm = nn.RMSNorm(dim)
        self.attn = nn.Attention(dim, HEADS, SHARED, SIZE, rope=rope)
        self.mlp = nn.MLP(dim, hidden)

    def forward(self, x: Any, cache: paged.PagedCache) -> Any:
        x = x + self.attn.paged(self.norm(x), cache, self.number)
        return x + self.mlp(x)


class Network(nn.Module):
    def __init__(self, dim: int = 33, vocabulary: int = 256, hidden: int | None = None) -> None:
        self.embedding = nn.Embedding(vocabulary, dim)
        rope = nn.RotaryEmbedding.of(SIZE, 128)
        self.layers = nn.ModuleList(Layer(number, rope, dim, hidden or dim + 38) for number in range(LAYERS))
        self.last = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens: Any, cache: paged.PagedCache) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cache)
        return self.last(cache.last_rows(x))


@pytest.fixture(scope="module")
def network() -> Network:
    return Network()


PROMPTS = ["hello", "a", "hello world, this is a longer prompt", "hello world, this is another one", "xyz" * 9]
PARAMS = [
    nn.SamplingParams(temperature=0, max_new_tokens=9),
    nn.SamplingParams(seed=5, max_new_tokens=14),
    nn.SamplingParams(temperature=0.8, top_k=20, seed=1, max_new_tokens=7),
    nn.SamplingParams(temperature=1.3, top_p=0.9, seed=2, max_new_tokens=11, repetition_penalty=1.2),
    nn.SamplingParams(min_p=0.01, seed=3, max_new_tokens=12),
]


def generator(network: Network, pages: int = 64, dtype: DType = DType.float32, **more: Any) -> nn.Generator:
    return nn.Generator(network, nn.PagedKVCacheManager(params(dtype), pages), **more)


def run(made: nn.Generator, prompts: Any = PROMPTS, each: Any = PARAMS) -> list[tuple[list[int], list[float]]]:
    requests = [made.submit(prompt, one) for prompt, one in zip(prompts, each, strict=True)]
    while made.step():
        pass
    assert all(request.is_finished and request.error is None for request in requests)
    return [(request.new, request.logprobs) for request in requests]


@pytest.fixture(scope="module")
def alone(network: Network) -> list[tuple[list[int], list[float]]]:
    return [run(generator(network), [prompt], [one])[0] for prompt, one in zip(PROMPTS, PARAMS, strict=True)]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"max_batch_size": 3, "tokens_per_step": 5},
        {"max_batch_size": 2, "tokens_per_step": 2},
        {"pages": 15, "tokens_per_step": 33},
    ],
)
def test_no_result_depends_on_the_batch_or_on_how_a_prompt_is_cut(network: Network, alone: Any, how: Any) -> None:
    made = generator(network, **how)
    assert run(made) == alone
    assert (made.figures.preemptions > 0) == ("pages" in how)
    assert made.cache.pages_in_use == 0
    assert run(made) == alone  # with pages that are known


def test_likelihoods_are_those_of_the_network_without_a_cache(network: Network, alone: Any) -> None:
    for prompt, one, (new, logprobs) in list(zip(PROMPTS, PARAMS, alone, strict=True))[:2]:
        tokens = [*prompt.encode(), *new]
        x = network.embedding(Tensor.from_numpy(np.array([tokens[:-1]])))
        layer: Any
        for _, layer in network.layers.children:
            x = x + layer.attn(layer.norm(x))
            x = x + layer.mlp(x)
        logits = network.last(x).numpy()[0, len(prompt) - 1 :].astype(np.float64)
        likelihoods = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        np.testing.assert_allclose(likelihoods[np.arange(len(new)), new], logprobs, atol=5e-5)
        if one.temperature == 0:
            assert likelihoods.argmax(-1).tolist() == new


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.int8, DType.float8_e4m3fn])
def test_caches_of_narrow_types_give_the_same_in_any_batch(network: Network, dtype: DType) -> None:
    made = generator(network, dtype=dtype)
    assert run(made) == [
        run(generator(network, dtype=dtype), [prompt], [one])[0] for prompt, one in zip(PROMPTS, PARAMS, strict=True)
    ]


@pytest.mark.as_shipped
@pytest.mark.parametrize("encoding", [QuantizationEncoding.Q8_0, QuantizationEncoding.Q4_0])
def test_quantised_networks_give_the_same_in_any_batch(encoding: QuantizationEncoding) -> None:
    """A step of a single sequence has a single row."""
    quantised = Network(96, hidden=160)
    for _, each in quantised.descendants:
        if isinstance(each, nn.Linear):
            each.encoding, each.weight = encoding, F.quantize(encoding, each.weight)
    each_alone = [run(generator(quantised), [prompt], [one])[0] for prompt, one in zip(PROMPTS, PARAMS, strict=True)]
    assert run(generator(quantised)) == each_alone
    assert run(generator(quantised, pages=20, tokens_per_step=32)) == each_alone


def test_wider_networks_give_the_same_in_any_batch() -> None:
    """Their products go other ways in few rows than in many."""
    wide = Network(320, 1001)
    made = generator(wide)
    each = [run(made, [prompt], [one])[0] for prompt, one in zip(PROMPTS, PARAMS, strict=True)]
    assert run(generator(wide), PROMPTS, PARAMS) == each
    assert run(generator(wide, pages=20, tokens_per_step=32), PROMPTS, PARAMS) == each


def test_streams_run_together_and_a_loop_that_is_left_frees_its_pages(network: Network, alone: Any) -> None:
    made = generator(network)
    first, second = made.stream(PROMPTS[0], PARAMS[0]), made.stream(PROMPTS[1], PARAMS[1])
    taken = [next(first) for _ in range(3)]
    assert taken == alone[0][0][:3] and made.figures.running == 2
    first.close()
    assert made.figures.running == 1
    assert list(second) == alone[1][0]
    assert made.cache.pages_in_use == 0
    figures = made.figures
    assert figures.tokens == len(alone[1][0]) + 3 and len(figures.time_between_tokens) == 2
    assert 0 < figures.time_to_first_token[0] <= figures.time_to_first_token[1]


def test_a_stream_that_nothing_reads_is_cancelled(network: Network, alone: Any) -> None:
    made = generator(network)
    read = made.stream(PROMPTS[1], PARAMS[1])
    left = [made.stream(prompt) for prompt in PROMPTS]
    next(read)
    next(left[0])
    assert made.figures.running == 6
    del left
    assert made.figures.running == 1
    assert list(read) == alone[1][0][1:] and made.cache.pages_in_use == 0
    made.stream("never read")
    assert made.step() == 0 and made.figures.waiting == 0


def test_the_asynchronous_form_gives_the_same(network: Network, alone: Any) -> None:
    made = generator(network)

    async def one(number: int) -> list[int]:
        return [token async for token in made.stream_async(PROMPTS[number], PARAMS[number])]

    async def every() -> list[list[int]]:
        return list(await asyncio.gather(*(one(number) for number in range(len(PROMPTS)))))

    assert asyncio.run(every()) == [tokens for tokens, _ in alone]
    assert made.cache.pages_in_use == 0


def test_streams_of_several_threads_run_together(network: Network, alone: Any) -> None:
    made = generator(network)
    with ThreadPoolExecutor(5) as pool:
        actual = list(pool.map(lambda number: list(made.stream(PROMPTS[number], PARAMS[number])), range(5)))
    assert actual == [tokens for tokens, _ in alone]


def test_consumers_of_one_stream_share_its_tokens(network: Network, alone: Any) -> None:
    made = generator(network)

    async def every() -> list[list[int]]:
        stream = made.stream_async(PROMPTS[1], PARAMS[1])

        async def some() -> list[int]:
            return [token async for token in stream]

        return list(await asyncio.gather(some(), some()))

    assert sorted(token for tokens in asyncio.run(every()) for token in tokens) == sorted(alone[1][0])
    assert made.cache.pages_in_use == 0


class Pairs:
    """Two letters are a token."""

    LETTERS = "abcdefghijklmno\u00e9"

    def encode(self, text: str) -> list[int]:
        numbers = [self.LETTERS.index(letter) for letter in text]
        return [16 * a + b for a, b in zip(numbers[::2], numbers[1::2], strict=True)]

    def decode(self, tokens: Any) -> str:
        return "".join(self.LETTERS[token // 16] + self.LETTERS[token % 16] for token in tokens)


@pytest.mark.parametrize("cut", [(3, 7), (4, 8), (5, 6), (9, 14)])
def test_a_text_that_ends_a_sequence_may_begin_and_end_within_tokens(network: Network, cut: tuple[int, int]) -> None:
    params = nn.SamplingParams(seed=9, max_new_tokens=12)
    made = generator(network, tokenizer=Pairs())
    (whole,) = made.generate(["abcd"], params)
    end = whole[cut[0] : cut[1]]
    (text,) = made.generate(["abcd"], dataclasses.replace(params, stop=(end,)))
    assert text == whole[: 2 * math.ceil((whole.index(end) + len(end)) / 2)]


def test_bytes_end_where_a_text_does(network: Network, alone: Any) -> None:
    params = nn.SamplingParams(stop=("\u00e9",))
    assert params.is_finished([7, 0xC3, 0xA9], bytes) and not params.is_finished([0xA9, 0xC3], bytes)
    with pytest.raises(EinkornError, match="have no text"):
        params.is_finished([1])


def test_a_sequence_ends_where_the_positions_of_the_model_end(network: Network) -> None:
    made = generator(network)
    assert made.max_length == 128
    assert len(list(made.stream("a" * 120))) == 8
    assert generator(network, max_length=50).max_length == 50


def test_a_model_that_fails_ends_its_requests_and_the_generator_goes_on() -> None:
    smaller = Network()
    smaller.embedding = nn.Embedding(200, 33)
    made = generator(smaller)
    first, second = made.stream([1, 2], PARAMS[0]), made.stream([230], PARAMS[1])
    errors = []
    for stream in (first, second):
        with pytest.raises(EinkornError) as caught:
            list(stream)
        errors.append(caught.value)
    assert errors[0] is errors[1] and (made.figures.running, made.cache.pages_in_use) == (0, 0)
    assert len(list(made.stream([1, 2], nn.SamplingParams(temperature=0, max_new_tokens=1)))) == 1


def test_texts_come_back_as_the_tokenizer_has_them(network: Network, alone: Any) -> None:
    assert generator(network).generate(PROMPTS, PARAMS) == [bytes(tokens) for tokens, _ in alone]


def test_a_request_that_needs_more_pages_than_there_are_fails_alone(network: Network, alone: Any) -> None:
    made = generator(network, pages=7)
    other = made.cache.claim()
    made.cache.alloc(other, 4 * PAGE)
    with pytest.raises(EinkornError) as caught:
        list(made.stream("sixteen letters!!!", PARAMS[0]))
    assert caught.value.code == "EK0474"
    assert made.cache.pages_in_use == 4
    assert run(made, PROMPTS[1:2], [nn.SamplingParams(seed=5, max_new_tokens=4)])[0][0] == alone[1][0][:4]


def test_numbers_that_allow_no_token_are_an_error_of_the_request() -> None:
    broken = Network()
    broken.last.weight = broken.last.weight * math.nan
    made = generator(broken)
    with pytest.raises(EinkornError, match="NaN") as caught:
        list(made.stream("a"))
    assert caught.value.code == "EK0479" and made.cache.pages_in_use == 0


# *** errors ***


def claimed() -> tuple[nn.PagedKVCacheManager, int]:
    cache = nn.PagedKVCacheManager(params(), 3)
    sequence = cache.claim()
    cache.alloc(sequence, 5)
    cache.step(sequence, [1, 2, 3])
    return cache, sequence


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda cache, s: cache.alloc(s, 10), "EK0474", "count"),
        (lambda cache, s: cache.alloc(s, -1), "EK0479", "count"),
        (lambda cache, s: cache.alloc(s, 1.5), "EK0479", "count"),
        (lambda cache, s: cache.alloc(s, math.nan), "EK0479", "count"),
        (lambda cache, s: cache.step(s, [1] * 6), "EK0479", "tokens"),
        (lambda cache, s: cache.step(s, [1, -2]), "EK0479", "tokens"),
        (lambda cache, s: cache.step(s, [1.5]), "EK0479", "tokens"),
        (lambda cache, s: cache.step(s, [math.nan]), "EK0479", "tokens"),
        (lambda cache, s: cache.claim(["a"]), "EK0479", "tokens"),
        (lambda cache, s: cache.claim(3), "EK0479", "tokens"),
        (lambda cache, s: cache.release(s + 1), "EK0479", "sequence"),
        (lambda cache, s: cache.fork("a"), "EK0479", "sequence"),
        (lambda cache, s: cache.length(None), "EK0479", "sequence"),
        (lambda cache, s: cache.batch([s], [6]), "EK0479", "counts"),
        (lambda cache, s: cache.batch([s, s], [1, 1]), "EK0479", "counts"),
        (lambda cache, s: cache.batch([s], []), "EK0479", "counts"),
    ],
)
def test_a_call_that_fails_leaves_the_cache_as_it_was(call: Any, code: str, argument: str) -> None:
    cache, sequence = claimed()
    with pytest.raises(EinkornError) as caught:
        call(cache, sequence)
    assert (caught.value.code, caught.value.argument) == (code, argument)
    assert caught.value.place is not None and caught.value.place.file == __file__
    assert (cache.sequences, cache.length(sequence), cache.pages_in_use) == ([sequence], 3, 2)
    cache.step(sequence, [1] * 5)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"page_size": 0}, "page_size"),
        ({"head_dim": 257}, "head_dim"),
        ({"num_layers": 1.5}, "num_layers"),
        ({"dtype": DType.int32}, "dtype"),
        ({"dtype": DType.int8, "head_dim": 33, "page_size": 3}, "page_size"),
        ({"dtype": "float32"}, "dtype"),
    ],
)
def test_what_a_page_cannot_hold_is_refused(change: Any, argument: str) -> None:
    with pytest.raises(EinkornError) as caught:
        nn.KVCacheParams(**{"dtype": DType.float32, "n_kv_heads": 1, "head_dim": 8, "num_layers": 1, **change})
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("prompt", "given", "argument"),
    [
        ("", None, "prompt"),
        ([256], None, "prompt"),
        ([-1], None, "prompt"),
        ([1.5], None, "prompt"),
        (7, None, "prompt"),
        ([0] * 1000, None, "prompt"),
        ("a", {"temperature": 1}, "params"),
    ],
)
def test_a_request_that_fits_no_model_is_refused_where_it_is_made(
    network: Network, prompt: Any, given: Any, argument: str
) -> None:
    made = generator(network)
    for call in (made.submit, made.stream, made.stream_async):
        with pytest.raises(EinkornError) as caught:
            call(prompt, given)
        assert (caught.value.code, caught.value.argument) == ("EK0479", argument)
        assert caught.value.place is not None and caught.value.place.file == __file__
    assert made.figures.waiting == 0


def test_a_page_that_there_is_not_is_an_error_when_it_is_read() -> None:
    cache = nn.PagedKVCacheManager(params(), 2)
    model = attending(cache)
    one = np.ones((1, SHARED, SIZE), np.float32)
    query = np.ones((1, HEADS, SIZE), np.float32)
    offsets = np.array([0, 1], np.uint32)
    for lengths, table in (([0], [[2]]), ([9], [[0, 1]])):
        with pytest.raises(EinkornError, match="page"):
            model(query, one, one, cache.pages, offsets, np.array(lengths, np.uint32), np.array(table, np.uint32))
    assert isinstance(cache.pages, Buffer) and not cache.pages.to_numpy().any()


@pytest.mark.parametrize("call", [nn.Generator.cancel, lambda made, request: made.advance(request, 0)])
@pytest.mark.parametrize("kind", ["request", "text"])
def test_a_generator_refuses_requests_that_are_not_its_own(network: Network, call: Any, kind: str) -> None:
    made, other = generator(network), generator(network)
    request: Any = other.submit("a", PARAMS[0]) if kind == "request" else "a"
    with pytest.raises(EinkornError) as caught:
        call(made, request)
    assert (caught.value.code, caught.value.argument) == ("EK0479", "request")
    assert other.figures.waiting == (kind == "request")


def test_one_text_is_no_list_of_prompts(network: Network) -> None:
    with pytest.raises(EinkornError) as caught:
        generator(network).generate("abc", PARAMS[0])
    assert (caught.value.code, caught.value.argument) == ("EK0479", "prompts")
