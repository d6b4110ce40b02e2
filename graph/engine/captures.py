"""Records calls, and makes them again with nothing looked up: the memory of inputs and outputs stays the same.

A capture has a caller of its own, whose pointers and sizes stand as the recorded call left them. To replay it is one
native call; on the host that is all that a recorded plan needs. A device that records work itself replays that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import GraphError, ReplayError
from ...dsl.diagnostics.places import user_place
from ..arguments import wrong
from ..calling.call import Caller
from ..calling.inputs import InputCheck
from ..calling.outputs import KeptOutput
from ..driver.buffer import Buffer
from ..driver.device import Driver, Replayable
from .divided import DividedCaller

MAX_KEY = (1 << 64) - 1  # the largest key

Key = int | tuple[Any, ...]
AnyCaller = Caller | DividedCaller


class Capture:
    """One recorded call: `inputs` in their memory, `outputs` in theirs."""

    def __init__(self, caller: AnyCaller, inputs: Sequence[Any]) -> None:
        caller.output_class = KeptOutput
        self.checks = caller.checks
        self.inputs = list(inputs)
        self.held = [_held(check, value) for check, value in zip(self.checks, inputs, strict=True)]
        self.outputs = caller.run(self.held)
        pairs = zip(self.checks, self.held, strict=True)
        self.arrays = [check.storage(value)[0] if check.special else check.array(value) for check, value in pairs]
        self.divided: DividedCaller | None = None
        self.recorded: Replayable | None = None
        if isinstance(caller, DividedCaller):
            self.divided = caller  # whose results keep their memory: to make the call again is to replay it
            return
        self.caller = next(iter(caller.variants.values()), caller)  # that of the variant, if there are views
        driver = caller.plan.driver
        self.recorded = None if self.caller.native.table is None else driver.capture(self._enqueue, self.caller)

    def check(self, inputs: Sequence[object]) -> None:
        """That these are the inputs that were captured.

        Raises:
            ReplayError: EK0466 one has other memory, another shape or dtype.
        """
        for check, value, captured in zip(self.checks, inputs, self.inputs, strict=True):
            if value is not captured and not _same_memory(value, captured):
                raise ReplayError(
                    f"replay: '{check.name}' is not the memory that was captured",
                    code="EK0466",
                    place=user_place(),
                    argument=check.name,
                    expected="the tensor that capture was given",
                    got=_shown(value),
                    hint="write new values into the captured tensor, or capture these inputs under another key",
                )

    def replay(self) -> None:
        """The call once more; the results are in the captured outputs."""
        if self.divided is not None:
            self.divided.run(self.held)
            return
        caller = self.caller
        if self.recorded is None:
            self._enqueue()
        else:
            outputs = (buffer._array for buffer in self.outputs)
            held = (*caller.memory.held_arenas(), *caller.memory.constants.values())
            self.recorded.replay(caller.ir.name, (*self.arrays, *outputs, *held))
        caller.expect_reports()

    def _enqueue(self) -> None:
        self.caller.enqueue(self.arrays)
        if self.caller.plan.copies:
            self.caller.memory.copy_outputs(self.arrays, self.outputs)


class Captures:
    """The recorded calls of a model."""

    def __init__(self, caller: AnyCaller) -> None:
        self.caller = caller
        self.known: dict[Key, Capture] = {}

    def key_of(self, method: str, inputs: Sequence[object]) -> tuple[Key, Sequence[Any]]:
        """The key of a call, and its inputs: the key comes first where it is given; else shapes and dtypes are it.

        Raises:
            GraphError: EK0451 a wrong number of inputs.
            ValueError, TypeError: what is not a key.
        """
        count = len(self.caller.checks)
        if len(inputs) == count + 1:
            return checked_key(inputs[0]), inputs[1:]
        if len(inputs) != count:
            raise GraphError(
                f"{method} takes {count} inputs, behind a key or without one; {len(inputs)} are given",
                code="EK0451",
                place=user_place(),
                expected=count,
                got=len(inputs),
            )
        return tuple((str(getattr(x, "dtype", type(x))), tuple(getattr(x, "shape", ()))) for x in inputs), inputs

    def capture(self, inputs: Sequence[object]) -> list[Buffer]:
        key, inputs = self.key_of("capture", inputs)
        steps = [step for code in self.caller.codes() for step in code.plan.steps]
        if steps:
            name = steps[0].op
            raise ReplayError(
                f"graph '{self.caller.ir.name}' cannot be captured: op '{name}' computes sizes when it runs",
                code="EK0467",
                place=user_place(),
                op=name,
                hint="execute it, or capture the part whose sizes follow from its inputs",
            )
        made = self.known[key] = Capture(self.caller.clone(), inputs)
        return list(made.outputs)

    def replay(self, inputs: Sequence[object]) -> None:
        key, inputs = self.key_of("replay", inputs)
        capture = self.find(key)
        capture.check(inputs)
        capture.replay()

    def verify(self, key: Any, inputs: Sequence[Any]) -> None:
        """Makes the call anew and from its capture, and compares the results to the bit.

        Raises:
            TypeError, ValueError: the key is none, or there are no inputs.
            ReplayError: EK0466 nothing was captured, or the inputs are others; EK0468 results differ.
        """
        checked_key(key)
        if not inputs and self.caller.checks:
            text = "debug_verify_replay needs the inputs of the call"
            raise GraphError(text, code="EK0451", place=user_place(), expected=len(self.caller.checks), got=0)
        capture = self.find(key)
        capture.check(inputs)
        inputs_held = zip(self.caller.checks, capture.arrays, strict=True)
        changed = [(check.driver, array) for check, array in inputs_held if check.is_buffer]
        before = [_content(*each) for each in changed]
        eager = self.caller.clone().run(capture.held)
        after = [_content(*each) for each in changed]
        for (driver, array), content in zip(changed, before, strict=True):
            driver.copy(array, content)
        capture.replay()
        pairs = [(f"output {k}", a, b) for k, (a, b) in enumerate(zip(eager, capture.outputs, strict=True))]
        results = [(name, a.to_numpy(), b.to_numpy()) for name, a, b in pairs]
        results += [("a buffer", a, _content(*b)) for a, b in zip(after, changed, strict=True)]
        for name, a, b in results:
            if a.tobytes() != b.tobytes():
                raise ReplayError(
                    f"graph '{self.caller.ir.name}': {name} of the replay differs from that of a call",
                    code="EK0468",
                    place=user_place(),
                    hint="a kernel with atomic operations may add in another order each time",
                )

    def find(self, key: Key) -> Capture:
        """The capture under a key; ReplayError EK0466 where there is none."""
        if key not in self.known:
            what = f"under the key {key}" if isinstance(key, int) else "for inputs of these shapes and dtypes"
            raise ReplayError(
                f"graph '{self.caller.ir.name}': nothing was captured {what}",
                code="EK0466",
                place=user_place(),
                expected=sorted(k for k in self.known if isinstance(k, int)),
                got=key,
                hint="call model.capture(...) first, with the same key",
            )
        return self.known[key]


def _content(driver: Driver, storage: Any) -> np.ndarray[Any, Any]:
    """What is in storage, as an array of its own; of a device's memory the bytes."""
    if isinstance(storage, np.ndarray):
        return storage.copy()
    content = np.empty(storage.size, np.uint8)
    driver.copy(content, storage)
    return content


class KeyTypeError(GraphError, TypeError):
    """What is not an integer cannot be the key of a capture."""


def checked_key(key: Any) -> int:
    """A key of a capture.

    Raises:
        GraphError: it is not an integer (a TypeError, too), or has no place in 64 bits (a ValueError, as all of them).
    """
    kind = KeyTypeError if isinstance(key, bool) or not isinstance(key, int | np.integer) else GraphError
    if kind is KeyTypeError or not 0 <= key <= MAX_KEY:
        wrong("graph_key", key, "an integer from 0 to 2**64 - 1", kind=kind)
    return int(key)


def _held(check: InputCheck, value: object) -> Any:
    """The input as something whose memory stays: a number becomes an array."""
    if isinstance(value, Buffer):
        return value
    array = check.array(value)
    return Buffer.from_numpy(array) if check.special else array


def _same_memory(value: object, captured: object) -> bool:
    if isinstance(value, bool | int | float | complex):
        return type(value) is type(captured) and value == captured
    if isinstance(value, Buffer) and isinstance(captured, Buffer) and not isinstance(value._array, np.ndarray):
        alike = value.dtype is captured.dtype and tuple(value.shape) == tuple(captured.shape)
        return alike and value._array is captured._array
    value, captured = _array(value), _array(captured)
    if value is None or captured is None:
        return False
    alike = value.dtype == captured.dtype and value.shape == captured.shape and value.strides == captured.strides
    return bool(alike and value.ctypes.data == captured.ctypes.data)


def _array(value: object) -> np.ndarray[Any, Any] | None:
    if isinstance(value, Buffer):
        value = value._array
    elif not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = Buffer.from_dlpack(value)._array
    return value if isinstance(value, np.ndarray) else None


def _shown(value: object) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
