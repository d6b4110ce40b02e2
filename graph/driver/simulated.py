"""Drives a GPU that is simulated by the processor at hand: memory of its own, kernels thread by thread.

Its memory lies in the process, as `DeviceMemory`: nothing reads or writes it but copies and kernels. Its code is two
shared objects, that of the host and that of the device; a launch goes from one to the other without Python.

See also `compiler.simulation.scheduler` (how threads are run).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from ...dsl.contract import abi
from ...dsl.contract.checking import Check, CheckState, FindingRecord
from ...dsl.contract.schedules import STAGE_BITS, Schedule, Switch, parse_schedule, schedule_of
from ...dsl.diagnostics.cached import cached
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DeviceError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.environment.knobs import knobs
from .checked_memory import CheckedMemory
from .device import ALIGNMENT, LAUNCHERS, Array, Code, CodeFile, DeviceMemory, Driver, Storage
from .halves import open_halves
from .shared_library import SharedLibrary

_FUNCTIONS = (abi.SIM_LAUNCH, abi.SIM_COPY, abi.SIM_FILL)


@dataclass(frozen=True)
class _Kept:
    """What has to live as long as code is called: the halves of the host and of the device."""

    host: object
    device: SharedLibrary


class SimulatedDriver(Driver):
    """One simulated GPU.

    Args:
        like: the compile target of the GPU that it is like.
        seed: draws the order of blocks, warps and threads between the places where they wait; 0 leaves them in order,
            and blocks to several workers.
        looks_for: what is looked for in what kernels do with its memory.
        schedule: the order of blocks and threads instead of one that is drawn, as switches of the plain one.
        number: distinguishes it from similar ones.
    """

    api = "sim"

    def __init__(
        self,
        like: str,
        seed: int = 0,
        looks_for: Check = Check.NOTHING,
        schedule: tuple[Switch, ...] | None = None,
        number: int = 0,
    ) -> None:
        target = f"sim:{like}{':checked' if looks_for else ''}"
        self.targets = ("host", target)
        order = f", seed {seed}" if seed else "" if schedule is None else ", by a schedule"
        self.name = f"{target}{order}"
        self.seed, self.schedule = seed, schedule
        self.draws = seed != 0
        self.in_order = seed != 0 or schedule is not None or bool(looks_for)
        self.architecture = like
        self.looks_for = looks_for
        if not looks_for:
            self.unchecked = 'data races are looked for by Accelerator("sim", checks="all"), not by this one'
        words = None if schedule is None else " ".join(map(str, schedule))
        self.made_with = (like, seed, ",".join(c.name.lower() for c in looks_for if c.name) or "off", words, number)
        self._held: dict[int, Array] = {}  # the memory that is given out, by its address

    @cached
    def checked(self) -> CheckedMemory | None:
        """What the checks know of the memory; None where nothing is looked for."""
        return CheckedMemory(LAUNCHERS.get()("sim"), self.looks_for) if self.looks_for else None

    def allocate(self, size: int) -> DeviceMemory:
        try:
            raw = np.empty(size + 2 * ALIGNMENT, np.uint8)  # with unused bytes on either side
        except (ValueError, OverflowError) as error:
            raise_if_of_handler(error)
            raise MemoryError(str(error)) from None
        start = raw.ctypes.data + 1
        address = start + -start % ALIGNMENT
        self._held[address] = raw
        if self.checked is None:
            return DeviceMemory(address, size, self._held.pop)
        self.checked.mark(address, size, written=False)
        return DeviceMemory(address, size, functools.partial(self._forget, size))

    def _forget(self, size: int, address: int) -> None:
        assert self.checked is not None
        self.checked.forget(address, size)
        del self._held[address]

    def copy(self, to: Storage, source: Storage) -> None:
        size = to.size if isinstance(to, DeviceMemory) else to.nbytes
        ctypes.memmove(_address(to), _address(source), size)
        self._written(to)

    def fill(self, storage: Any, byte: int) -> None:
        ctypes.memset(storage.address, byte, storage.size)
        self._written(storage)

    def _written(self, storage: Storage) -> None:
        if self.checked is not None and isinstance(storage, DeviceMemory):
            self.checked.mark(storage.address, storage.size, written=True)

    def load(self, files: Sequence[CodeFile]) -> Code:
        half = open_halves(files)
        library = SharedLibrary(files[-1].path)
        functions = [library.address(kernel.symbol) for kernel in half.kernels.kernels]
        entry = half.entry if self.checked is None else self.checked.in_turn(half.entry)
        return Code(entry, half.reports, _Kept(half.keep, library), half.kernels, functions, half.scratch)

    def table(self, code: Code) -> abi.DeviceTable:
        assert isinstance(code.keep, _Kept)
        library = code.keep.device
        functions = (ctypes.c_void_p * max(1, len(code.functions)))(*code.functions)
        table = abi.DeviceTable(*(library.address(name) for name in _FUNCTIONS))
        table.functions = ctypes.addressof(functions)
        table.driver = self.seed
        table.reports = None if self.checked is None else self.checked.state
        schedule = None if self.schedule is None else schedule_of(self.schedule)
        table.schedule = None if schedule is None else ctypes.addressof(schedule)
        table.keep = functions, schedule  # as long as the table
        return table

    def begin(self, table: abi.DeviceTable, owner: str, storages: Iterable[object]) -> None:
        if table.schedule:
            Schedule.from_address(table.schedule).launch = self.first_launch(table)

    def first_launch(self, table: abi.DeviceTable) -> int:
        stage: int = abi.Context.from_address(table.context).stage
        return (stage << STAGE_BITS) - 1

    def notes(self) -> list[str]:
        if self.schedule is not None:
            return ["threads ran by a schedule"]
        return [f"threads ran in an order drawn from seed {self.seed}, which draws it again"] if self.seed else []

    def finding(self) -> tuple[FindingRecord, CheckState] | None:
        return None if self.checked is None else self.checked.finding()

    def synchronize(self) -> None:
        pass  # every call has ended when it returns

    def properties(self) -> dict[str, str | int]:
        held = list(self._held.values())
        return {"like": self.architecture, "allocations": len(held), "used_memory": sum(raw.nbytes for raw in held)}


LIKE: Final = "sm_90a"  # the GPU by default


def open_simulated(
    name: object,
    like: str | None,
    seed: int | None,
    checks: str | None,
    schedule: str | None = None,
    number: int | None = None,
) -> SimulatedDriver:
    """The device of a name: `sim`, like the GPU of a compile target, or `sim:gfx942`. The same name returns the same
    device.

    Raises:
        DeviceError: EK0801 another name, or `like` or `seed` of what is not simulated; or `checks` that there are
            not, or an invalid `schedule` or `number`.
    """
    family, colon, chosen = name.partition(":") if isinstance(name, str) else ("", "", "")
    if family != "sim" or (colon and like is not None) or bool(colon) is not bool(chosen):
        expected = '"sim" with like=, or "sim:gfx942"'
        raise _refusal(f"{shown_value(name)} is not a simulated GPU", "id", expected, name)
    if schedule is None and seed is None:
        schedule = knobs.sim_schedule
    seed = knobs.sim_seed if seed is None else seed
    if type(seed) is not int or not 0 <= seed < 1 << 63:
        raise _refusal(f"a seed is a whole number, not {shown_value(seed)}", "seed", "from 0 to 2**63 - 1", seed)
    if number is not None and (type(number) is not int or not 0 <= number < 1 << 16):
        text = f"a simulated GPU has no number {shown_value(number)}"
        raise _refusal(text, "number", "a number from 0 to 65535", number)
    switches = parse_schedule(schedule) if isinstance(schedule, str) else None
    if schedule is not None and switches is None:
        expected = 'switches of the plain order, as an error says them: "0:5.14=103 0:2~5"'
        raise _refusal(f"{shown_value(schedule)} is not a schedule", "schedule", expected, schedule)
    order = (seed if switches is None else 0, _looks_for(checks), switches)
    return _opened(chosen or like or LIKE, *order, number or 0)


def _refusal(message: str, argument: str, expected: str, got: object) -> DeviceError:
    place = user_place()
    return DeviceError(message, code="EK0801", place=place, argument=argument, expected=expected, got=shown_value(got))


@functools.cache
def _opened(
    like: str, seed: int, looks_for: Check, schedule: tuple[Switch, ...] | None, number: int
) -> SimulatedDriver:
    return SimulatedDriver(like, seed, looks_for, schedule, number)


def _looks_for(checks: object) -> Check:
    """What a text such as `"all"` or `"races,bounds"` requests.

    Raises:
        DeviceError: EK0801 it requests something else.
    """
    if checks is None or checks == "off":
        return Check.NOTHING
    named = {check.name.lower(): check for check in Check if check.name}
    words = [word.strip() for word in checks.split(",")] if isinstance(checks, str) else [""]
    if words != ["all"] and not set(words) <= set(named):
        text = f"a simulated GPU does not look for {shown_value(checks)}"
        raise _refusal(text, "checks", f'"all", "off", or some of {", ".join(named)}', checks)
    return functools.reduce(lambda a, b: a | b, named.values() if words == ["all"] else map(named.__getitem__, words))


def _address(storage: Storage) -> int:
    address: int = storage.address if isinstance(storage, DeviceMemory) else storage.ctypes.data
    return address
