"""Races, accesses outside of buffers, and reads of uninitialised memory: found where they are, and in no other
place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.checked_run import Outcome, run_checked
from support.gpu_case import KERNELS

from einkorn.dsl.contract.checking import Check, Found

X = np.arange(256, dtype=np.int32)


def run(op: str, looks_for: Check | None = None, **params: Any) -> Outcome:
    checks = {} if looks_for is None else {"looks_for": looks_for}
    return run_checked(KERNELS / "wrong_memory.py", f"wrong::{op}", [X], [X], params, **checks)


ONE_PLACE = "out[b * gpu.block_dim.x + gpu.thread_idx.x] = x[gpu.global_idx.x]"
READ, WRITE = "v = out[(t + 1) % n]", "out[t] = x[t]"


@pytest.mark.parametrize(
    ("op", "params", "found", "lines"),
    [
        ("ring", {}, Found.NOTHING, None),
        ("ring", {"first": 0}, Found.RACE, {WRITE, READ}),
        ("ring", {"second": 0}, Found.RACE, {"out[t] = v", READ}),
        ("one_place", {}, Found.NOTHING, None),
        ("one_place", {"by_block": 0}, Found.RACE, {ONE_PLACE}),
        ("counted", {}, Found.NOTHING, None),
        ("counted", {"atomically": 0}, Found.RACE, {"out[0] = out[0] + x[t]"}),
        ("masked", {}, Found.NOTHING, None),
        ("masked", {"mask": 0}, Found.RACE, {"out.store(x.load(4 * t, width=4), 2 * t)"}),
    ],
)  # fmt: skip
def test_races_of_a_block_and_of_blocks(op: str, params: dict[str, int], found: Found, lines: set[str] | None) -> None:
    outcome = run(op, **params)
    assert outcome.found is found
    if lines is not None:
        assert set(outcome.lines) == lines and outcome.threads[0] != outcome.threads[1]


FLAG = Check.RACES | Check.BOUNDS  # the flag of these kernels is unused before


@pytest.mark.parametrize(
    ("op", "params", "found"),
    [
        ("publish", {}, Found.NOTHING),
        ("publish", {"write": "relaxed"}, Found.RACE),
        ("publish", {"read": "relaxed"}, Found.RACE),
        ("publish", {"write": "seq_cst", "read": "seq_cst"}, Found.NOTHING),
        ("last_block", {}, Found.NOTHING),
        ("last_block", {"ordering": "relaxed"}, Found.RACE),
        ("last_block", {"waits": 0}, Found.RACE),
        ("handed_on", {}, Found.NOTHING),
        ("handed_on", {"waits": 0}, Found.RACE),
    ],
)
def test_what_blocks_publish_to_each_other(op: str, params: dict[str, Any], found: Found) -> None:
    assert run(op, FLAG, **params).found is found


BOTH = {"before": "release", "after": "acquire"}


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({}, Found.RACE),
        (BOTH, Found.NOTHING),
        ({"before": "release"}, Found.RACE),
        ({"after": "acquire"}, Found.RACE),
        ({"fences": "device"}, Found.NOTHING),
        ({"fences": "block"}, Found.RACE),  # the other thread is in another block
        ({"fences": "block", "before": "release"}, Found.RACE),
        ({**BOTH, "fences": "block"}, Found.NOTHING),
        ({"before": "release", "fences": "device"}, Found.NOTHING),
        ({**BOTH, "scope": "block"}, Found.RACE),
        ({"fences": "system", "scope": "block"}, Found.RACE),
    ],
)
def test_a_message_to_another_block(params: dict[str, Any], found: Found) -> None:
    assert run("message", FLAG, **params).found is found


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({}, Found.RACE),
        ({**BOTH, "scope": "block"}, Found.NOTHING),
        ({"before": "release", "scope": "block"}, Found.RACE),
        ({"fences": "block"}, Found.NOTHING),
        ({"fences": "block", "scope": "block"}, Found.NOTHING),
        ({"fences": "device", "scope": "block"}, Found.NOTHING),
        ({"after": "acquire", "scope": "block", "fences": "block"}, Found.NOTHING),
    ],
)
def test_a_message_within_a_block(params: dict[str, Any], found: Found) -> None:
    assert run("message", FLAG, by=7, **params).found is found


def test_a_fence_publishes_what_a_warp_did_before() -> None:
    assert run("warp_message", FLAG).found is Found.NOTHING
    assert run("warp_message", FLAG, syncs=0).found is Found.RACE


@pytest.mark.parametrize("reads", [0, 1])
def test_atomic_operations_for_a_block_alone(reads: int) -> None:
    scopes = [("device", "device"), ("system", "device"), ("block", "device"), ("device", "block"), ("block", "block")]
    scopes += [("system", "cluster"), ("cluster", "cluster")]  # clusters of one block
    for first, second in scopes:
        actual = run("counts", FLAG, first=first, second=second, reads=reads).found
        assert actual is (Found.RACE if {"block", "cluster"} & {first, second} else Found.NOTHING), (first, second)
        assert run("counts", FLAG, first=first, second=second, reads=reads, grid=1).found is Found.NOTHING


def test_accesses_outside_of_a_buffer() -> None:
    assert run("beyond").found is Found.NOTHING
    for by, thread in ((193, 63), (-1, 0)):
        outcome = run("beyond", by=by)
        assert (outcome.found, outcome.threads[0]) == (Found.OUTSIDE, thread)
        assert outcome.lines[0] == "out.pointer().store(x[t], t + by)"
    assert run("beyond", Check.RACES, by=193).found is Found.NOTHING  # not requested; it stores into a zone


@pytest.mark.parametrize(
    ("how", "line"),
    [
        (1, "out[t] = v + x[t]  # stored"),
        (2, "if how == 2 and v > 0:  # decided by"),
        (3, "out[t] = x[Int(v) % 64]  # an address"),
        (4, "atomic.add(out, t, 1)  # a use by itself"),
        (5, "out[t] = gpu.warp.shuffle_xor(v, 1)  # given to another thread"),
    ],
)
def test_reads_of_what_nothing_wrote(how: int, line: str) -> None:
    outcome = run("early", how=how)
    assert (outcome.found, outcome.lines[0]) == (Found.UNINITIALISED, line)
    assert how == 4 or outcome.lines[1] == "v = out[t]"


def test_to_compute_with_it_is_no_use() -> None:
    assert run("early", how=0).found is Found.NOTHING


def test_copies_that_may_be_under_way() -> None:
    assert run("copied").found is Found.NOTHING
    for waits in ("last", "own"):
        outcome = run("copied", waits=waits)
        assert (outcome.found, outcome.lines[1]) == (
            Found.PENDING,
            "token = gpu.copy_async(rows[t, :], x[4 * t : 4 * t + 4])",
        )
        assert (outcome.threads[0] == outcome.threads[1]) is (waits == "own")


def test_many_barriers() -> None:
    assert run("rounds", count=50).found is Found.NOTHING


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({}, Found.NOTHING),
        ({"first": 1}, Found.UNINITIALISED),
        ({"first": 1, "last": 8, "rounds": 7}, Found.NOTHING),
        ({"first": 1, "zero": 1}, Found.NOTHING),
        ({"last": 8}, Found.OUTSIDE),
        ({"last": 6}, Found.OUTSIDE),
    ],
)
def test_storage_of_a_thread(params: dict[str, int], found: Found) -> None:
    outcome = run("stacked", **params)
    assert outcome.found is found
    if found is not Found.NOTHING:
        assert outcome.lines[found is Found.UNINITIALISED].startswith("total += view.load(")
    if found is Found.UNINITIALISED:
        assert outcome.lines[0] == "out[t] = total", "it goes through the rounds of a loop"


def test_elements_of_half_a_byte() -> None:
    outcome = run("halves")
    assert outcome.found is Found.NOTHING
    assert outcome.outputs[0][:16].tolist() == [1, 0, 3, 2, 5, 4, 7, 6, -7, -8, -5, -6, -3, -4, -1, -2]
    outcome = run("halves", skips=12)
    assert (outcome.found, outcome.threads[0], outcome.lines[1][:12]) == (Found.UNINITIALISED, 13, "out[t] = til")


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({}, Found.NOTHING),
        ({"scope": "block"}, Found.PROMISE),
        ({"scope": "block", "by": 64}, Found.NOTHING),
        ({"scope": "grid", "by": 64}, Found.NOTHING),
        ({"by": 31}, Found.PROMISE),
    ],
)
def test_promises(params: dict[str, Any], found: Found) -> None:
    """Equal values are compared in the same rounds, whatever other threads did before."""
    outcome = run("promised", **params)
    assert outcome.found is found
    if found is Found.PROMISE:
        assert outcome.lines[0] == "if gpu.uniform(float32(t // by) * 0.5, scope=scope) > 0.25:"
        assert outcome.threads == ((31, 0) if "by" in params else (32, 0))
    assert run("promised", Check.RACES, **params).found is Found.NOTHING


@pytest.mark.parametrize(
    ("params", "found", "line"),
    [
        ({}, Found.NOTHING, ""),
        ({"first": 1}, Found.RACE, "kept[t] = x["),
        ({"last": 0}, Found.OUTSIDE, "v = gpu.cluster.peer("),
        ({"away": 1}, Found.OUTSIDE, "v = gpu.cluster.peer("),
    ],
)
def test_blocks_of_a_cluster(params: dict[str, int], found: Found, line: str) -> None:
    outcome = run("neighbours", **params)
    assert outcome.found is found and outcome.lines[0].startswith(line)
    if not params:
        assert outcome.outputs[0][:128].tolist() == [*X[:64][::-1], *X[64:128][::-1]]
    if params == {"first": 1}:
        assert outcome.lines[1].startswith("v = gpu") and outcome.threads == (32, 31)


def test_blocks_of_a_cluster_that_part() -> None:
    outcome = run("waiting", Check.BOUNDS)
    assert outcome.reports == ("parted",)
    assert run("waiting").found is Found.PROMISE
