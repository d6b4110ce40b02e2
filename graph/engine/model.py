"""Holds a graph that is ready to run, and calls it.

`Model.execute` checks the inputs against the signature, finds or makes the memory, and makes one native call. With the
sizes of the last call nothing is allocated but the outputs.

See also `engine.session` (how a graph becomes a model).
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from ...dsl.contract.checks import Checks
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DeviceError, EinkornError, GraphError, KernelError, of_call
from ...dsl.diagnostics.forks import fork_lock, in_child
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.rich import Rich
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.tracebacks import bare
from ...dsl.types.dtype import DType
from ..arguments import list_of, wrong
from ..calling.bound import BoundModel, placed_by_name
from ..calling.call import Caller
from ..calling.call_plan import plan_calls
from ..calling.door_policy import MODELS, CallCounter
from ..calling.inputs import WRONG_INPUT, InputCheck, wrong_inputs
from ..calling.outputs import Filling, KeptOutput, as_outputs
from ..calling.padded import check_extent, from_bytes, run_padded
from ..calling.python_door import kinds_served, python_door
from ..checking.unwritten import run_twice
from ..driver.buffer import Buffer
from ..driver.device import Driver, Storage
from ..driver.devices import Device, DeviceRef, placed_on
from ..ir import GraphIR
from ..loading.background import BACKGROUND
from ..loading.code import LoadedCode
from ..loading.planned import kernel_summaries
from ..passes.fusion import Partition
from ..profiling.profile import MAX_ACCESSES, Profile, TracedCaller, Tracing, counting
from ..types.dims import StaticDim
from ..types.tensor_type import ShapedType
from .captures import AnyCaller, Captures
from .divided import DividedCaller, DividedTracing

if TYPE_CHECKING:
    from ..passes.pass_summary import PassSummary
    from ..passes.summaries import KernelSummary
    from ..profiling.memory_counters import MemoryCounters
    from .export import ExportOptions, ExportSource


Run = Callable[[Any, Sequence[Any]], list[Buffer]]  # how a call is made: of a caller and the inputs


@dataclass(frozen=True)
class TensorSpec:
    """What a model takes or gives at one position: a size that a call brings is None in `shape`, and in `dims` its name
    or expression."""

    name: str
    dtype: DType
    shape: list[int | None]
    device: DeviceRef
    dims: tuple[int | str, ...] = ()


class Model(Rich):
    """A graph that is ready to run. Any number of threads may call it at once: each call has memory of its own for
    intermediate results, which later calls take again."""

    IDLE = 8  # callers that are kept for later calls

    def __init__(
        self,
        ir: GraphIR,
        load: Callable[[GraphIR], LoadedCode],
        filling: Filling | None = None,
        weights: Mapping[int, Storage] | None = None,
        like: Model | None = None,
        threads: int | None = None,
    ) -> None:
        self._threads = threads
        self.rewriting: tuple[PassSummary, ...] = ()  # what passes did before the code was made
        self.reduced: Callable[[Mapping[int, Storage]], tuple[object, ...]] | None = None  # for pickle, with weights
        self.wanted_checks: Checks | None = None  # as the session said
        self.with_weights_for: Callable[..., tuple[GraphIR, Mapping[int, Storage]]] | None = None  # see `CompiledModel`
        self.ir = ir
        self._load = load
        self._filling = filling  # for runs that look for uninitialised memory
        self._weights = weights or {}
        self._checks = [InputCheck(name, type) for name, type in zip(ir.argument_names, ir.inputs, strict=True)]
        self._own: AnyCaller = self._made(load, filling, like, threads)
        self._idle: list[AnyCaller] = [self._own]
        self._callers: weakref.WeakSet[AnyCaller] = weakref.WeakSet(self._idle)
        self._plain: Run = type(self._own).run  # with neither profile nor extent
        self._captures = Captures(self._own)
        self._slots: AnyCaller | None = None
        self._traced: TracedCaller | DividedCaller | None = None
        self._profile: Profile | None = None
        if filling is not None and isinstance(self._own, Caller):
            self._plain = self._run_twice
            self._lock = fork_lock()  # such runs share the filling
        self._run: Run = self._plain
        self._forget_doors()
        _models.add(self)

    def _made(
        self, load: Callable[[GraphIR], LoadedCode], filling: Filling | None, like: Model | None, threads: int | None
    ) -> AnyCaller:
        """The first caller."""
        if len(self.ir.devices) > 1:
            divided = None if like is None else like._own
            assert divided is None or isinstance(divided, DividedCaller)
            return DividedCaller(self.ir, load, self._checks, filling, self._weights, divided, threads)
        if like is not None:
            return like.first_caller.clone(filling)
        return Caller(plan_calls(self.ir, load, self._checks, self._weights, threads), filling)

    @property
    def first_caller(self) -> Caller:
        """The first caller, of a graph of one device."""
        assert isinstance(self._own, Caller)
        return self._own

    @property
    def code(self) -> LoadedCode:
        """The code of a graph of one device."""
        return self.first_caller.code

    def _forget_doors(self) -> None:
        self._doors: list[Any] = []  # functions that make calls without Python, for a kind of views each
        self._door: Any = None  # the newest, which hands on what it does not serve
        self._counter = CallCounter(MODELS)  # of calls that a door could have made, before there is one

    def _forget_calls(self) -> None:
        """In the child of a fork, where a call of another thread would last for ever."""
        self._forget_doors()
        for call in list(self._callers):
            call.forget()

    def clone(self) -> Model:
        """A model of the same code and weights, with memory, captures and bound buffers of its own."""
        made = Model(self.ir, self._load, self._filling, self._weights, self, self._threads)
        made.reduced, made.rewriting = self.reduced, self.rewriting
        made.wanted_checks, made.with_weights_for = self.wanted_checks, self.with_weights_for
        return made

    __copy__ = clone

    def __reduce__(self) -> tuple[object, ...]:
        assert self.reduced is not None
        with placed_on(self._own.devices):
            return self.reduced(self._weights)

    @property
    def input_metadata(self) -> list[TensorSpec]:
        """Name, dtype, shape and device of each input; a size that calls bring is None, and has its name in `dims`."""
        return [_spec(f"input{k}", type) for k, type in enumerate(self.ir.inputs)]

    @property
    def output_metadata(self) -> list[TensorSpec]:
        """Name, dtype, shape and device of each output; a size that calls bring is None; `dims` has it."""
        return [_spec(f"output{k}", type) for k, type in enumerate(self.ir.output_types)]

    def execute(self, *inputs: object, out: Sequence[Any] | None = None, **named: object) -> list[Buffer]:
        """Runs the graph once.

        Args:
            inputs: one for each input type: `Buffer`s, NumPy arrays, or anything that speaks DLPack, of the declared
                dtype and shape, on the declared device. Python and NumPy scalars serve inputs of rank 0. Views
                (transposed, with steps, broadcast) are read where they lie; the first call with a new kind of view
                compiles code for it.

                An input of a `BufferType` is changed in place: it has to be writable memory that shares nothing with
                the other inputs, and numbers do not serve. When a kernel stops itself, or Ctrl-C ends the call, what
                was changed stays changed.
            named: further inputs by their names: `input0`, `input1`, …, or what `forward` of the graph calls them.
            out: where the outputs go: one contiguous `Buffer` or array for each, or None for a fresh one. They share
                no memory with inputs or with each other. When the call fails, what is in them is undefined.

        Returns:
            One buffer for each output; those over the memory of `out` where it is given.

        Raises:
            GraphError: a wrong number of inputs, a wrong shape, memory that is not aligned to its elements, or memory
                that is changed in place and is read-only or shared.
            DTypeError: a wrong dtype, or something that is not a tensor.
            KernelError: a kernel stopped itself; EK0707 `cancel` ended the call.
            KeyboardInterrupt: Ctrl-C ended the call; the model can be called again.
        """
        try:
            if self._door is not None and out is None and not named:
                result: list[Buffer] = self._door(*inputs)
                return result
            return self._execute(self._by_name(inputs, named) if named else inputs, out)
        except EinkornError as error:
            raise bare(error) from error.__cause__

    def _execute(self, inputs: Sequence[object], out: Sequence[Any] | None = None) -> list[Buffer]:
        """A call by Python; after the third plain one a door is made."""
        if len(inputs) != len(self._checks):
            raise GraphError(
                f"graph '{self.ir.name}' takes {len(self._checks)} inputs, {len(inputs)} are given",
                code="EK0451",
                place=user_place(),
                expected=len(self._checks),
                got=len(inputs),
            )
        call = self._take()
        try:
            if out is None:
                results = self._run(call, inputs)
                if self._counter.looks and self._run is Caller.run:
                    self._count_call(inputs)
                return results
            call.given = as_outputs(out, len(self.ir.outputs))
            return self._run(call, inputs)
        except EinkornError as error:
            wrong = wrong_inputs(self._checks, inputs) if error.code in WRONG_INPUT else []
            if len(wrong) > 1:
                raise of_call(wrong) from None
            raise
        except BaseException:  # Ctrl-C, at any step of the call
            call.forget()
            raise
        finally:
            if call.given is not None:
                call.given = None
            self._give_back(call)

    def _count_call(self, inputs: Sequence[object]) -> None:
        """Lets a door be made in the background when calls repeat, where there can be one."""
        counter = self._counter
        counter.looks -= 1
        BACKGROUND.resume()
        kinds = kinds_served(inputs, self.ir.inputs)
        if kinds is None or not counter.is_due(kinds):
            return
        patterns = tuple(None if isinstance(kind, str) else kind for kind in kinds)
        caller = self.first_caller.known.get(patterns) if any(patterns) else self.first_caller
        if not counter.is_full and caller is not None:
            scalars = tuple(kind if isinstance(kind, str) else "" for kind in kinds)
            BACKGROUND.submit(functools.partial(_open_door, weakref.ref(self), self._doors, caller, scalars))

    def _by_name(self, inputs: Sequence[object], named: Mapping[str, object]) -> tuple[Any, ...]:
        """All inputs in their order, for a call that names some."""
        given = dict(enumerate(inputs)) | placed_by_name(self.ir, self.input_names, range(len(inputs)), named)
        missing = [name for k, name in enumerate(self.ir.argument_names) if k not in given]
        if missing:
            raise GraphError(
                f"graph '{self.ir.name}' is called without '{missing[0]}'",
                code="EK0451",
                place=user_place(),
                argument=missing[0],
                expected=len(self._checks),
                got=len(given),
            )
        return tuple(given[position] for position in range(len(self._checks)))

    def _run_twice(self, call: Caller, inputs: Sequence[object]) -> list[Buffer]:
        assert self._filling is not None
        with self._lock:
            return run_twice(call, inputs, self._filling)

    def _take(self) -> AnyCaller:
        """A caller that no other thread has."""
        try:
            return self._idle.pop()
        except IndexError:
            call = self._own.clone()
            self._callers.add(call)
            return call

    def _give_back(self, call: AnyCaller) -> None:
        if call.interrupt is not None:  # `cancel` came too late
            call.forget()
        if len(self._idle) < self.IDLE:
            self._idle.append(call)

    def cancel(self) -> None:
        """Ends the calls of this model that run in other threads, between two ops or within a long loop: each raises
        KernelError EK0707. Calls that begin later are not touched."""
        for call in list(self._callers):
            if call not in self._idle:
                call.cancel()
        for door in self._doors:
            door.__self__.cancel(lambda: KernelError("the call was cancelled", code="EK0707", place=user_place()))

    __call__ = execute

    def _run_by(self, run: Run) -> None:
        """Lets calls be made so from now on."""
        self._run = run
        self._forget_doors()

    # *** other forms of execution ***

    def run_slots(self, *inputs: object) -> list[Buffer]:
        """As `execute`, into outputs that the model keeps: the next call with the same sizes writes the same memory.

        For one thread at a time.
        """
        if self._slots is None:
            self._slots = self._own.clone()
            self._slots.output_class = KeptOutput
            self._callers.add(self._slots)
        if len(inputs) != len(self._checks):
            return self.execute(*inputs)  # which says so
        return self._slots.run(inputs)

    def run_pipelined(self, input_sets: Iterable[Sequence[Any]]) -> list[list[Buffer]]:
        """One call for each set of inputs, in their order; the device is waited for once, at the end."""
        sets = list_of("input_sets", input_sets, "lists of inputs", "EK0451")
        given = [list_of(f"input_sets[{k}]", inputs, "inputs", "EK0451") for k, inputs in enumerate(sets)]
        results = [self.execute(*inputs) for inputs in given]
        for driver in self._drivers:
            driver.synchronize()
        return results

    def run_typed(self, inputs: Sequence[tuple[Any, ...]]) -> list[tuple[bytes, DType]]:
        """A call with tensors as bytes.

        Args:
            inputs: (bytes, dtype) for each input, or (bytes, dtype, shape) where more than one size is open. A narrower
                dtype of the same kind is widened to that of the graph.

        Returns:
            (bytes, dtype) for each output, row-major.

        Raises:
            GraphError: EK0451 a wrong number, EK0454 bytes that are no such tensor.
            DTypeError: EK0452 a dtype that does not widen.
        """
        results = self.execute(*from_bytes(self.ir, inputs))
        return [(result.to_numpy().tobytes(), result.dtype) for result in results]

    def bind(self, *inputs: Any, **named: Any) -> BoundModel:
        """The model with its first inputs fixed, and those named; what is bound stays where it lies, and is not copied.

        Raises:
            GraphError: EK0469 an input that the graph does not have, or one that is given twice.
            DTypeError: as by `execute`.
        """
        return BoundModel(self.ir, self._checks, self.input_names, self.execute).bind(*inputs, **named)

    def set_active_extent(self, everything: None = None, /, **extent: int) -> None:
        """Lets the calls that follow compute over the first elements of axes alone: `set_active_extent(batch=3)`.

        Inputs keep their padded size, outputs have it, too, and are 0 beyond what is active. Without arguments, or with
        None, all elements count again.

        Raises:
            GraphError: EK0454 the graph has no dim of that name.
        """
        if everything is not None:
            wrong("extent", everything, "the size of a dim by its name, such as batch=3, or None")
        active = check_extent(self.ir, extent)
        self._run_by(functools.partial(run_padded, extent=active) if active else self._plain)

    def capture(self, *inputs: object) -> list[Buffer]:
        """Makes a call and records it, under an integer before the inputs, or else under their shapes and dtypes.

        Returns:
            The outputs, whose memory `replay` writes again.

        Raises:
            ReplayError: EK0467 the graph computes sizes on the way; or as by `execute`.
            TypeError, ValueError: the key is not an integer of 64 bits.
        """
        return self._captures.capture(inputs)

    def replay(self, *inputs: object) -> None:
        """Makes a captured call again, with the same key and the same tensors: only what is in them may differ.

        Raises:
            ReplayError: EK0466 nothing was captured, or the inputs lie elsewhere.
        """
        self._captures.replay(inputs)

    def debug_verify_replay(self, graph_key: int, *inputs: object) -> None:
        """Makes a captured call anew and from its record, and compares the results to the bit.

        Raises:
            TypeError, ValueError: the key is not an integer of 64 bits, or no inputs are given.
            ReplayError: EK0466 nothing was captured under the key; EK0468 the results differ.
        """
        self._captures.verify(graph_key, inputs)

    def profile(self, profile: Profile | None) -> None:
        """Records the calls that follow, with the groups of kernels in them; None ends it. See `session.profile`."""
        self._profile = profile
        if profile is None:
            self._run_by(self._plain)
            return
        if self._traced is None:
            self._traced = self._made_traced()
            self._callers.add(self._traced)
        traced = self._traced
        tracing = DividedTracing if isinstance(traced, DividedCaller) else Tracing
        self._run_by(tracing(traced, profile).run)  # type: ignore[arg-type]  # the one goes with the other

    def _made_traced(self) -> TracedCaller | DividedCaller:
        """A caller that counts memory accesses."""
        own, traced = self._own, any(code.keep is not None for code in self._own.codes())
        ir, known = dataclasses.replace(self.ir, traced=traced), (self._load, self._checks, self._filling)
        if isinstance(own, DividedCaller):
            with placed_on(own.devices):
                return DividedCaller(ir, *known, self._weights, None, self._threads, TracedCaller)
        return TracedCaller(plan_calls(ir, self._load, self._checks, self._weights, self._threads), self._filling)

    def count_memory(self, *inputs: object, room: int = MAX_ACCESSES) -> MemoryCounters:
        """Runs the graph once, and counts what its kernels do with memory: bytes, sectors, bank conflicts, by line.

        Args:
            inputs: as for `execute`.
            room: accesses that are looked at; 32 bytes each.

        Raises:
            DeviceError: EK0744 the device does not count; a simulated GPU with `checks=` does.
        """
        results: list[MemoryCounters] = []
        own = self._own
        memory = next((driver.checked for driver in self._drivers if driver.checked is not None), None)
        if memory is None:
            text = f"{self._own.devices[0]} does not report the memory accesses of kernels"
            hint = 'use Accelerator("sim", checks="all")'
            raise DeviceError(text, code="EK0744", place=user_place(), hint=hint)
        if isinstance(own, DividedCaller):
            if len(inputs) != len(self._checks):
                self.execute(*inputs)  # which says so
            counting_caller = own.clone()
            counting_caller.counted, counting_caller.room = results, room
            counting_caller.run(inputs)
        else:
            with counting(memory, own, results, room):
                self.execute(*inputs)
        if self._profile is not None:
            self._profile.counted += results
        if len(results) == 1:
            return results[0]
        with shielded():
            from ..profiling.memory_counters import added  # few devices count

        return added(results)

    @property
    def _drivers(self) -> list[Driver]:
        """The drivers of the devices that the graph runs on."""
        return [device.driver for device in self._own.devices]

    # *** what is known ***

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, in their order."""
        return [spec.name for spec in self.input_metadata]

    @property
    def devices(self) -> list[Device]:
        """The devices that the graph runs on."""
        return list(self._own.devices)

    @property
    def input_devices(self) -> list[Device]:
        """The device on which each input has to lie: `buffer.to(model.input_devices[0])`."""
        return self._places(self.ir.inputs)

    @property
    def output_devices(self) -> list[Device]:
        """The device on which each output lies."""
        return self._places(self.ir.output_types)

    def _places(self, types: Iterable[ShapedType]) -> list[Device]:
        with placed_on(self._own.devices):
            return [type.device.to_device() for type in types]

    @property
    def kernel_summaries(self) -> list[KernelSummary]:
        """What was fused into what, a summary for each kernel, with the reason for each edge that was not fused."""
        with placed_on(self._own.devices):
            return kernel_summaries(self.ir, [code.plan for code in self._own.codes()])

    @property
    def passes(self) -> tuple[PassSummary, ...]:
        """What each pass over the graph did, in their order; the planning passes of each device's part come last."""
        return (*self.rewriting, *(each for code in self._own.codes() for each in code.plan.passes))

    def export(
        self,
        path: str | PathLike[str],
        *,
        header: str | PathLike[str] | None = None,
        name: str | None = None,
        output_names: Sequence[str] | None = None,
        targets: str | Sequence[str] = (),
        weights: str = "inside",
        threads: bool = True,
        debug: bool = False,
    ) -> None:
        """Writes the model as a file that C programs call, without Python and without a compiler.

        Args:
            path: a shared object (`.so`), an object for linkers (`.o`), or a package (`.pkg`) for sessions to load.
            header: where its header goes, for C11 and C++.
            name, output_names: begins its functions' names, by default the graph's; of outputs: `y0`, `y1`, …
            targets: processors, such as "x86-64-v3", "x86-64-v4" or "aarch64"; x86-64-v3 or aarch64 when left out.
            weights: "inside" the file; "beside" it, in PATH.safetensors, mapped at the first call; or "given" by calls.
            threads: whether large calls use several threads: those of the file, or of the program that calls it.
            debug: whether the file has line numbers of kernels for debuggers.

        Raises:
            GraphError, TargetError: EK0483 the graph cannot be exported like this, or a file cannot be written; EK0601
                an unknown target.
        """
        with shielded():
            from .export import ExportOptions, export_models
        options = ExportOptions.of(targets, weights, threads, debug).of_file(path)
        export_models([self.export_source(options, name, output_names)], path, header=header, options=options)

    def export_source(
        self, options: ExportOptions, name: str | None = None, output_names: Sequence[str] | None = None
    ) -> ExportSource:
        """What is exported of the model: its graph and its weights, packed for the processors of the export."""
        with shielded():
            from .export import ExportSource, packed_for
        ir, weights, width = self.ir, self._weights, packed_for(self.ir, options)
        if width is not None and self.with_weights_for is not None:
            ir, weights = self.with_weights_for(width or None, given=options.weights == "given")
        return ExportSource(ir, weights, self.wanted_checks, name, output_names)

    def verify_fusion(self, load: Callable[[GraphIR, Partition | None], LoadedCode]) -> None:
        """From now on each call compares fused kernels with their ops; `EINKORN_VERIFY_FUSION=1` requests it."""
        with shielded():
            from ..checking.fusion_check import FusionCheck  # few processes request it

        self._plain = FusionCheck(self.first_caller, load).run
        self._run_by(self._plain)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the model holds: `constants`, `intermediate` results of all threads, `outputs` kept for reuse."""
        callers = [each for call in self._callers for each in call.all()]
        constants = sum(getattr(c, "nbytes", None) or c.size for c in self._own.held_memory())
        arenas: list[Any] = [arena for call in callers for arena in call.memory.held_arenas()]
        kept = [output.size * len(output.kept) for call in callers for output in call.memory.outputs]
        sizes = sum(getattr(a, "nbytes", None) or a.size for a in arenas)
        return {"constants": constants, "intermediate": sizes, "outputs": sum(kept)}

    def __repr__(self) -> str:
        takes = ", ".join(str(t) for t in self.ir.inputs)
        gives = ", ".join(str(t) for t in self.ir.output_types)
        return f"Model({self.ir.name!r}: ({takes}) -> ({gives}))"


def _spec(name: str, type: ShapedType) -> TensorSpec:
    dims = tuple(int(d) if isinstance(d, StaticDim) else str(d) for d in type.shape)
    shape = [size if isinstance(size, int) else None for size in dims]
    return TensorSpec(name, type.dtype, shape, type.device, dims)


def _open_door(model_of: Callable[[], Model | None], doors: list[Any], caller: Caller, scalars: Sequence[str]) -> None:
    """Makes a door of a model, unless its doors were forgotten meanwhile."""
    model = model_of()
    if model is None or model._doors is not doors or model._counter.is_full:
        return
    then = _By(model) if model._door is None else model._door
    door = python_door(caller, model.ir.name, then, scalars=scalars, buffers="list")
    if door is not None and model._doors is doors:
        doors.append(door)
        model._counter.doors += 1
        model._door = door


class _By:
    """What a model's door hands calls on to: the model, which the door does not keep alive."""

    __slots__ = ("model",)

    def __init__(self, model: Model) -> None:
        self.model = weakref.ref(model)

    def __call__(self, *inputs: Any) -> list[Buffer]:
        model = self.model()
        assert model is not None  # code that calls has it
        return model._execute(inputs)


_models: weakref.WeakSet[Model] = weakref.WeakSet()


@in_child
def _forget_all() -> None:
    for model in list(_models):
        model._forget_calls()
