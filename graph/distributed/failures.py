"""Words the errors of collectives: which rank waits where, which has not come, which calls something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...dsl.diagnostics.errors import KernelError
from ...dsl.environment.knobs import knobs
from .communicator import CollectiveCall

SAME_CALLS: Final = "all ranks of a group call the same collectives, in the same order, with the same sizes and dtypes"


def timeout_of() -> float | None:
    """How many seconds a rank waits for others; None for ever."""
    return knobs.collective_timeout or None


def ranks_text(ranks: Sequence[int]) -> str:
    """Such as "rank 2" or "ranks 0 and 3"."""
    words = [str(rank) for rank in ranks]
    if len(words) == 1:
        return f"rank {words[0]}"
    return f"ranks {', '.join(words[:-1])} and {words[-1]}"


def different_calls(calls: Mapping[int, CollectiveCall]) -> KernelError:
    """The error of ranks that call different collectives."""
    (first, one), *others = calls.items()
    rank, other = next((each for each in others if each[1].signature != one.signature), others[0])
    return KernelError(
        f"rank {first} calls {one.signature}, and rank {rank} calls {other.signature}",
        code="EK0861",
        place=one.place,
        op=one.op,
        expected=one.signature,
        got=other.signature,
        notes=[f"rank {each} calls {call}" for each, call in calls.items()],
        hint=SAME_CALLS,
    )


def other_size(rank: int, call: CollectiveCall, sender: int | None) -> KernelError:
    """The error of a rank that gets a tensor of another size than its own from another rank, if that is known."""
    other = "another rank" if sender is None else f"rank {sender}"
    return KernelError(
        f"rank {rank} calls {call.signature}, and {other} calls it with another number of elements",
        code="EK0861",
        place=call.place,
        op=call.op,
        expected=call.signature,
        hint=SAME_CALLS,
    )


def after_failure(rank: int, call: CollectiveCall) -> KernelError:
    """The error of a rank that calls a collective after one that has failed on it."""
    return KernelError(
        f"rank {rank} calls {call.signature} after a collective of the same ranks has failed on it",
        code="EK0863",
        place=call.place,
        op=call.op,
        hint="let the first error end the program: it ends all ranks",
    )


def late_ranks(rank: int, call: CollectiveCall, absent: Sequence[int], seconds: float | None) -> KernelError:
    """The error of a rank that has waited too long."""
    rest = f"{ranks_text(absent)} did not come" if absent else "not all ranks came"
    return KernelError(
        f"rank {rank} waited {seconds:g} s in {call.signature}, and {rest}",
        code="EK0862",
        place=call.place,
        op=call.op,
        got=list(absent),
        hint="EINKORN_COLLECTIVE_TIMEOUT=600 waits longer, where ranks take so long between their collectives",
    )


def ended_rank(rank: int, call: CollectiveCall, gone: Sequence[int]) -> KernelError:
    """The error of a rank that waits for one whose program is over."""
    has = "has" if len(gone) == 1 else "have"
    return KernelError(
        f"rank {rank} waits in {call.signature}, and {ranks_text(gone)} {has} ended without calling it",
        code="EK0863",
        place=call.place,
        op=call.op,
        got=list(gone),
    )


def failed_rank(rank: int, call: CollectiveCall, failed: int, error: BaseException) -> KernelError:
    """The error of a rank that waits while another one fails."""
    text = str(error).partition("\n")[0] or type(error).__name__
    return KernelError(
        f"rank {rank} waits in {call.signature}, and rank {failed} has failed: {text}",
        code="EK0863",
        place=call.place,
        op=call.op,
        got=failed,
    )
