"""The door for PyTorch: calls an entry with tensors of one kind, through the stable C interface of libtorch.

    void *ek_door(table, uint64_t *words, uint64_t *results)

A kernel of PyTorch's dispatcher has found it by the dtypes, ranks and patterns of strides of the tensors, and by the
parameters (see `torch_dispatch`), so that none of these is looked at again. `words` has the tensors' handles, which
stay the kernel's, and numbers. The door leaves handles of what it makes in `results`. It returns null; 1 where it does
not serve the call, and has changed nothing; or the address of a failure.

Tensors with gaps are read where they lie. What is written is apart from all other tensors, else Python looks closer;
its version is counted up for autograd. Outputs that the caller gives with gaps are written as a whole, and copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...dsl.contract.doors import DoorArgument, DoorSpec, TorchForm
from ...dsl.types.dtype import DType
from ..ir.llvm_text import Number as Value
from .text import DECLARATIONS, TensorDoorText, run_text
from .torch_dispatch import MISS

COUNTER: Final = 16  # in what counts the versions of a tensor: the number


def torch_text(spec: DoorSpec, form: TorchForm) -> str:
    """The text of a door."""
    words = form.words(spec)
    return "\n".join([DECLARATIONS, run_text(words, lock=False), _TorchDoor(spec, form, words).text()])


class _TorchDoor(TensorDoorText):
    def __init__(self, spec: DoorSpec, form: TorchForm, words: Sequence[str]) -> None:
        super().__init__("@ek_door", "ptr", ["ptr %table", "ptr %words", "ptr %results"], words)
        self.spec, self.form = spec, form
        self.table = "%table"
        self.known: dict[str, Value] = {}
        self.answer = self.block(1)
        # Of the tensor at a position: between which addresses it lies, where it begins, strides, bytes of an element.
        self.extents: dict[int, tuple[str, str]] = {}
        self.begins: dict[int, str] = {}
        self.strides: dict[int, Sequence[str]] = {}
        self.widths: dict[int, int] = {}
        self.write()

    def write(self) -> None:
        spec, form = self.spec, self.form
        places = form.inputs or tuple(range(len(spec.arguments)))
        inputs = [self.argument(place, argument) for place, argument in zip(places, spec.arguments, strict=True)]
        self.need_relations(spec, self.known)
        if spec.late:
            self.first_stage(inputs)
        shapes = [[self.size_of_output(axis) for axis in output.axes] for output in spec.outputs]
        for k, place in enumerate(form.outputs or ()):
            self.given(place, k, shapes[k])
        written = [place for place, a in zip(places, spec.arguments, strict=True) if a.mutable]
        written += [place for place, gap in zip(form.outputs or (), form.gaps, strict=True) if not gap]
        self.need_apart(written)
        large = self.large(shapes)
        slots = self.slots(spec, self.known)
        made = self.outputs(shapes)
        outputs = [self.property_of("data", handle, "ptr") for handle in made]
        self.or_fail(self.run(self.pointers(spec, inputs, outputs), slots, large, len(spec.late[:1])), made)
        self.copy(made)
        for place in written:
            self.count_version(place)
        if form.outputs is None:
            self.results(made)
        self.leave("null")
        self.line("unreachable")
        self.label("miss.")
        self.leave(MISS)

    def first_stage(self, inputs: Sequence[str]) -> None:
        """Runs the shape function; where its sizes are impossible, Python runs it again and says why."""
        self.or_fail(self.late_sizes(self.spec, self.known, inputs, self.large(())), ())
        self.need_late_sizes(self.spec, self.known)

    def or_fail(self, run: tuple[str, str, str], made: Sequence[str]) -> None:
        """Goes on where a run of the entry has not failed."""
        context, status, failed = run
        with self.when(failed):
            self.release(made)
            self.leave(self.call(self.word("fail"), [f"ptr {context}", f"i64 {status}"], "ptr"))

    # what is passed

    def handle(self, place: int) -> str:
        return self.load("ptr", self.at("%words", 8 * place))

    def property_of(self, word: str, handle: str, type: str) -> str:
        """A property of a tensor, which has all those that are read here."""
        self.call(self.word(word), [f"ptr {handle}", f"ptr {self.answer}"], "i32")
        return self.load(type, self.answer)

    def argument(self, place: int, argument: DoorArgument) -> str:
        """Where the elements of an argument lie, with its sizes known."""
        if argument.scalar:
            return self.number(self.load("i64", self.at("%words", 8 * place)), argument)
        handle, order = self.handle(place), argument.places or range(len(argument.axes))
        sizes = self.words_of("sizes", handle, order)
        for size, result in zip(argument.axes, sizes, strict=True):
            self.match(size, result)
        strides: list[str] = []
        if argument.strides:
            strides = self.words_of("strides", handle, order)
            for stride, result in zip(argument.strides, strides, strict=True):
                self.match(stride, result)
            if argument.mutable:
                self.need_own_elements(sizes, strides)
        elif argument.places:
            self.need_dense(handle, sizes, order)
        return self.memory(place, handle, argument.dtype, sizes, strides)

    def words_of(self, word: str, handle: str, order: Sequence[int]) -> list[str]:
        """The sizes or strides of a tensor, with its axes in an order."""
        if not order:
            return []
        words = self.property_of(word, handle, "ptr")
        return [self.load("i64", self.at(words, 8 * axis)) for axis in order]

    def need_dense(self, handle: str, sizes: Sequence[Value], order: Sequence[int]) -> None:
        """A tensor lies without gaps, with its axes in this order."""
        expected: Value = 1
        for size, stride in reversed([*zip(sizes, self.words_of("strides", handle, order), strict=True)]):
            same = self.compare("eq", stride, expected)
            self.need(self.either(same, self.compare("eq", size, 1), "i1"))
            expected = self.mul(expected, size)

    def memory(self, place: int, handle: str, dtype: DType, sizes: Sequence[Value], strides: Sequence[str]) -> str:
        """Where the elements of a tensor lie."""
        data = self.property_of("data", handle, "ptr")
        address = self.value(f"ptrtoint ptr {data} to i64")
        self.need_same(self.both(address, dtype.align - 1), 0, "i64")
        self.extent_of(place, address, dtype, sizes, strides)
        return data

    def extent_of(self, place: int, address: str, dtype: DType, sizes: Sequence[Value], strides: Sequence[str]) -> None:
        """Notes between which addresses a tensor lies, where that counts; one without elements has no address."""
        writes = self.form.outputs is not None or any(argument.mutable for argument in self.spec.arguments)
        if not writes:
            return
        reach: Value = 1
        if strides:
            for size, stride in zip(sizes, strides, strict=True):
                reach = self.add(reach, self.mul(self.sub(size, 1), stride))
        count = self.elements(sizes)
        some = self.compare("ne", count, 0)
        end = self.add(address, self.mul(reach if strides else count, dtype.size_in_bytes))
        self.begins[place], self.strides[place], self.widths[place] = address, strides, dtype.size_in_bytes
        self.extents[place] = self.select(some, address, 0), self.select(some, end, 0)

    def number(self, word: str, argument: DoorArgument) -> str:
        """A number that is passed at run time as an element on the stack; a miss where it does not fit."""
        block, dtype = self.block(1), argument.dtype
        if dtype.is_float():
            self.store_real(self.real(word, argument), dtype, block)
        elif dtype is DType.bool:
            self.store("i8", self.narrow(self.both(word, 1), "i8"), block)
        else:
            self.store_whole(word, dtype, block)
        return block

    def real(self, word: str, argument: DoorArgument) -> str:
        """A float, or an integer that the element's dtype holds exactly."""
        if argument.scalar != "int":
            return self.value(f"bitcast i64 {word} to double")
        return self.real_of_int(word, argument.dtype)

    # what is written

    def given(self, place: int, k: int, shape: Sequence[Value]) -> None:
        """An output that the caller gives has the sizes that the signature says."""
        handle, output = self.handle(place), self.spec.outputs[k]
        order = output.places or range(len(shape))
        sizes = self.words_of("sizes", handle, order)
        for size, wanted in zip(sizes, shape, strict=True):
            self.need_same(size, wanted, "i64")
        if self.form.gaps[k]:
            return
        if output.places:
            self.need_dense(handle, sizes, order)
        self.memory(place, handle, output.dtype, sizes, [])

    def need_own_elements(self, sizes: Sequence[Value], strides: Sequence[str]) -> None:
        """No two elements of a tensor share memory: each stride steps over all that smaller strides reach."""
        moves = [self.compare("sgt", size, 1) for size in sizes]
        spans = [self.mul(self.sub(size, 1), stride) for size, stride in zip(sizes, strides, strict=True)]
        for axis, stride in enumerate(strides):
            reach: Value = 1
            for other in range(len(strides)):
                if other == axis:
                    continue
                below = self.compare("sle" if other < axis else "slt", strides[other], stride)
                counts = self.both(below, moves[other], "i1")
                reach = self.add(reach, self.select(counts, spans[other], 0))
            clear = self.compare("sge", stride, reach)
            self.need(self.either(clear, self.value(f"xor i1 {moves[axis]}, true"), "i1"))

    def need_apart(self, written: Sequence[int]) -> None:
        """What is written shares no memory with any other tensor."""
        for place in written:
            for other, (begin, end) in self.extents.items():
                if other == place or (other in written and other < place):
                    continue
                before = self.compare("ule", self.extents[place][1], begin)
                apart = self.either(before, self.compare("ule", end, self.extents[place][0]), "i1")
                self.need(self.either(apart, self.alternate(place, other), "i1"))

    def alternate(self, one: int, other: int) -> str:
        """Whether the elements of two views lie in turns, as two columns of a table do: the strides of both are
        multiples of one, and where they begin differs by none."""
        pairs = [(self.strides[k], self.widths[k]) for k in (one, other)]
        if not all(strides for strides, _ in pairs) or pairs[0][1] != pairs[1][1]:
            return "false"
        width = pairs[0][1]
        step = self.value(f"call i64 @llvm.smax.i64(i64 {pairs[0][0][-1]}, i64 1)")
        rest = self.value(f"srem i64 {self.sub(self.begins[one], self.begins[other])}, {self.mul(step, width)}")
        result = self.both(
            self.compare("ne", rest, 0), self.compare("eq", self.value(f"srem i64 {rest}, {width}"), 0), "i1"
        )
        for stride in (stride for strides, _ in pairs for stride in strides):
            result = self.both(result, self.compare("eq", self.value(f"srem i64 {stride}, {step}"), 0), "i1")
        return result

    def copy(self, made: Sequence[str]) -> None:
        """Copies outputs to where the caller wants them, if that has gaps."""
        if self.form.outputs is None:
            return
        for place, gap, handle in zip(self.form.outputs, self.form.gaps, made, strict=True):
            if gap:
                wrong = self.call(self.word("copy"), [f"ptr {self.handle(place)}", f"ptr {handle}", "i32 0"], "i32")
                self.call(self.word("delete"), [f"ptr {handle}"], "i32")
                self.need_same(wrong, 0, "i32")

    def count_version(self, place: int) -> None:
        """Says to autograd that a tensor has been written; one of the inference mode has no version."""
        tensor = self.load("ptr", self.handle(place))
        counter = self.load("ptr", self.at(tensor, self.word("version", "i64")))
        with self.when(self.compare("ne", counter, "null", "ptr")):
            self.line(f"{'%' + self.fresh()} = atomicrmw add ptr {self.at(counter, COUNTER)}, i32 1 monotonic")

    # what is given back

    def large(self, shapes: Sequence[Sequence[Value]]) -> str:
        """Whether a tensor has more elements than one thread shall do, and no thread here holds Python's lock: a thread
        of the pool that reports would wait for it."""
        large = "false"
        seen = set()
        tensors = [(a.axes, [self.size(axis, self.known) for axis in a.axes]) for a in self.spec.arguments]
        for axes, sizes in [*tensors, *zip((o.axes for o in self.spec.outputs), shapes, strict=False)]:
            if axes not in seen:
                seen.add(axes)
                large = self.either(large, self.compare("sgt", self.elements(sizes), self.spec.small), "i1")
        free = self.variable("i1", "false")
        with self.when(large):
            free.set(self.compare("eq", self.call(self.word("holds_lock"), [], "i32"), 0, "i32"))
        return free.value()

    def outputs(self, shapes: Sequence[Sequence[Value]]) -> list[str]:
        """New tensors, and those that are given; what is not available is a miss, and Python says why."""
        made: list[str] = []
        mine: list[str] = []
        for k, shape in enumerate(shapes):
            if self.form.outputs is not None and not self.form.gaps[k]:
                made.append(self.handle(self.form.outputs[k]))
                continue
            made.append(self.new(k, shape, mine))
            mine.append(made[-1])
        return made

    def new(self, k: int, shape: Sequence[Value], before: Sequence[str]) -> str:
        sizes, strides = self.block(len(shape)), self.block(len(shape))
        order = self.spec.outputs[k].places or range(len(shape))
        stride: Value = 1
        for axis in reversed(range(len(shape))):
            self.store("i64", shape[axis], self.at(sizes, 8 * order[axis]))
            self.store("i64", stride, self.at(strides, 8 * order[axis]))
            if axis:
                stride = self.mul(stride, self.value(f"call i64 @llvm.smax.i64(i64 {shape[axis]}, i64 1)"))
        dtype = self.narrow(self.word(f"output{k}", "i64"), "i32")
        words = [f"i64 {len(shape)}", f"ptr {sizes}", f"ptr {strides}", f"i32 {dtype}", "i32 0", "i32 0"]
        code = self.call(self.word("empty"), [*words, f"ptr {self.answer}"], "i32")
        failed = self.compare("ne", code, 0, "i32")
        with self.when(failed):
            for handle in before:
                self.call(self.word("delete"), [f"ptr {handle}"], "i32")
        self.need(self.value(f"xor i1 {failed}, true"))
        return self.load("ptr", self.answer)

    def release(self, made: Sequence[str]) -> None:
        """Gives back the tensors that this door has made."""
        for k, handle in enumerate(made):
            if self.form.outputs is None or self.form.gaps[k]:
                self.call(self.word("delete"), [f"ptr {handle}"], "i32")

    def results(self, made: Sequence[str]) -> None:
        """The results, those of variadic outputs in lists."""
        rest = iter(made)
        for k, count in enumerate(self.form.lists or (-1,) * len(made)):
            if count < 0:
                self.store("ptr", next(rest), self.at("%results", 8 * k))
                continue
            self.call(self.word("new_list"), [f"i64 {count}", f"ptr {self.answer}"], "i32")
            result = self.load("ptr", self.answer)
            for _ in range(count):
                word = self.value(f"ptrtoint ptr {next(rest)} to i64")
                self.call(self.word("put_list"), [f"ptr {result}", f"i64 {word}"], "i32")
            self.store("ptr", result, self.at("%results", 8 * k))
