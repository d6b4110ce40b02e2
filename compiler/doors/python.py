"""The door for Python: a function of CPython's that reads NumPy arrays where they lie.

    PyObject *ek_door(PyObject *self, PyObject *args, PyObject *named)

It takes a tuple and a dict, as Python makes them for an object that is called; for a function that requests arguments
laid out side by side, Python would make both, and then lay them out anew. `self` is an array of NumPy's whose
elements are the table (`PythonForm.words`). What the door does not serve goes to the next one with all that it was
passed; the last is a function of Python's. It requests nothing but what lies in the headers of objects, at offsets
that NumPy's and CPython's binary interfaces fix; a probe reads them before the first door is believed (`PROBE`).
References are counted by Python's own functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...dsl.contract.doors import LARGE_BYTES, NUMPY_SCALAR, DoorArgument, DoorOutput, DoorSpec, GetterForm, PythonForm
from ...dsl.signature.dims import DimName, DimNumber, Expression
from ...dsl.types.dtype import DType
from ..ir.llvm_text import Number as Value
from .python_text import PythonText
from .text import DECLARATIONS, DoorText, run_text

TYPE: Final = 8  # of an object
DATA: Final = 16  # of an array, from here on
RANK: Final = 24
DIMS: Final = 32
STRIDES: Final = 40
DTYPE: Final = 56
FLAGS: Final = 64
COUNT: Final = 16  # of a tuple, and of a dict
ITEMS: Final = 24
FLOAT: Final = 16  # of a float: its number
ELEMENT: Final = 16  # of a scalar of NumPy's
CELL: Final = 16  # of a variable of a function: what it holds

CONTIGUOUS: Final = 0x001
ALIGNED: Final = 0x100
WRITEABLE: Final = 0x400

# What the first bytes of objects are, for comparison with what is known of them: an array, a float, the tuple in which
# they come, a dict. And which thread runs.
PROBE: Final = """
declare ptr @llvm.thread.pointer()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @ek_probe(ptr %self, ptr %args, ptr %named) {
  %to.at = getelementptr i8, ptr %self, i64 16
  %to = load ptr, ptr %to.at
  %array.at = getelementptr i8, ptr %args, i64 24
  %array = load ptr, ptr %array.at
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %to, ptr align 8 %array, i64 72, i1 false)
  %number.at = getelementptr i8, ptr %args, i64 32
  %number = load ptr, ptr %number.at
  %to.number = getelementptr i8, ptr %to, i64 72
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %to.number, ptr align 8 %number, i64 24, i1 false)
  %to.args = getelementptr i8, ptr %to, i64 96
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %to.args, ptr align 8 %args, i64 32, i1 false)
  %to.named = getelementptr i8, ptr %to, i64 128
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %to.named, ptr align 8 %named, i64 24, i1 false)
  %thread = call ptr @llvm.thread.pointer()
  %to.thread = getelementptr i8, ptr %to, i64 152
  store ptr %thread, ptr %to.thread
  %got.at = getelementptr i8, ptr %args, i64 40
  %got = load ptr, ptr %got.at
  ret ptr %got
}

define ptr @ek_thread() {
  %thread = call ptr @llvm.thread.pointer()
  ret ptr %thread
}
"""


def python_text(spec: DoorSpec, form: PythonForm) -> str:
    """The text of a door."""
    words = form.words(spec)
    return "\n".join(
        [DECLARATIONS, run_text(words, lock=True, bounded=spec.bounded), _PythonDoor(spec, form, words).text()]
    )


def getter_text(form: GetterForm) -> str:
    """The text of a function of one argument that gives the object `value`."""
    f = DoorText("@ek_door", "ptr", ["ptr %self", "ptr %argument"], form.words())
    f.table = f.load("ptr", f.at("%self", DATA))
    need_unchanged(f, form)
    value = f.word("value")
    f.call(f.word("incref"), [f"ptr {value}"])
    f.leave(value)
    f.line("unreachable")
    f.label("miss.")
    passed = f"ptr {f.word('next_self')}, ptr %argument"
    f.leave(f.value(f"musttail call ptr {f.word('next')}({passed})"))
    return f.text()


def need_unchanged(f: DoorText, form: PythonForm | GetterForm) -> None:
    """Goes on where what the kernel read of Python's variables is what it was."""
    for k in range(form.names):
        passed = [f"ptr {f.word(f'module{k}')}", f"ptr {f.word(f'name{k}')}"]
        f.need_same(f.call(f.word("lookup"), passed, "ptr"), f.word(f"found{k}"), "ptr")
    for k in range(form.cells):
        f.need_same(f.load("ptr", f.at(f.word(f"cell{k}"), CELL)), f.word(f"content{k}"), "ptr")


class _PythonDoor(PythonText):
    def __init__(self, spec: DoorSpec, form: PythonForm, words: Sequence[str]) -> None:
        super().__init__("@ek_door", "ptr", ["ptr %self", "ptr %args", "ptr %named"], words)
        self.spec, self.form = spec, form
        self.table = self.load("ptr", self.at("%self", DATA))
        self.known: dict[str, Value] = {}
        self.counts: dict[tuple[object, ...], Value] = {}  # by the names of axes
        self.given = ""  # what `out=` says, if anything; a null pointer else
        self.write()

    def write(self) -> None:
        spec = self.spec
        self.need_room()
        self.keywords()
        inputs = [self.argument(k, argument) for k, argument in enumerate(spec.arguments)]
        self.need_relations(spec, self.known)
        self.need_apart(inputs)
        need_unchanged(self, self.form)
        large = self.first_stage(inputs) if spec.late else "false"
        shapes = [[self.size_of_output(axis) for axis in output.axes] for output in spec.outputs]
        large = self.either(large, self.large(shapes), "i1")
        objects = self.outputs(shapes, inputs)
        outputs = [self.load("ptr", self.at(each, DATA)) for each in objects]
        slots = self.slots(spec, self.known)
        counts = [self.product(axes, [self.size(axis, self.known) for axis in axes]) for axes in spec.temps]
        arena = self.arena(counts, objects) if counts else ""
        pointers = self.pointers(spec, inputs, outputs, self.temps(arena, len(counts)))
        context, status, failed = self.run(pointers, slots, large, len(spec.late[:1]))
        if arena:
            self.put_back(arena)
        with self.when(failed):
            self.fail(context, status, objects)
        self.give(objects, shapes)
        self.line("unreachable")
        self.label("miss.")
        passed = f"ptr {self.word('next_self')}, ptr %args, ptr %named"
        result = self.value(f"musttail call ptr {self.word('next')}({passed})")
        self.leave(result)

    def first_stage(self, inputs: Sequence[str]) -> str:
        """Runs the shape function, and says whether it had the threads of the pool; where its sizes are impossible,
        Python runs it again and says why."""
        large = self.large(())
        context, status, failed = self.late_sizes(self.spec, self.known, inputs, large)
        with self.when(failed):
            self.fail(context, status, ())
        self.need_late_sizes(self.spec, self.known)
        return large

    # what is passed

    def need_type(self, value: str, word: str) -> None:
        self.need_same(self.load("ptr", self.at(value, TYPE)), self.word(word))

    def keywords(self) -> None:
        """The number of arguments, and keywords as they were when the door was made."""
        form = self.form
        self.need_same(self.load("i64", self.at("%args", COUNT)), len(self.spec.arguments), "i64")
        count = self.variable("i64", 0)
        with self.when(self.compare("ne", "%named", "null", "ptr")):
            count.set(self.load("i64", self.at("%named", COUNT)))
        known, passed = len(form.keywords), count.value()
        out = self.compare("eq", passed, known + 1) if form.out else ""
        plain = self.compare("eq", passed, known)
        self.need(self.either(plain, out, "i1") if out else plain)
        for k, kind in enumerate(form.keywords):
            self.need_value(self.keyword(f"keyword{k}"), k, kind)
        if out:
            given = self.variable("ptr", "null")
            with self.when(out):
                given.set(self.keyword("out_name"))
            self.given = given.value()

    def keyword(self, name: str) -> str:
        """What is passed under a name."""
        value = self.call(self.word("lookup"), ["ptr %named", f"ptr {self.word(name)}"], "ptr")
        self.need(self.compare("ne", value, "null", "ptr"))
        return value

    def passed(self, k: int) -> str:
        """What is passed at a place."""
        return self.load("ptr", self.at("%args", ITEMS + 8 * k))

    def need_value(self, value: str, k: int, kind: str) -> None:
        """The value of a parameter is what it was, whichever object it is."""
        other = self.compare("ne", value, self.word(f"value{k}"), "ptr")
        if kind == "float":
            with self.when(other):
                self.need_type(value, "float_type")
                self.need_same(self.load("i64", self.at(value, FLOAT)), self.word(f"bits{k}", "i64"), "i64")
        elif kind == "int":
            with self.when(other):
                self.need_type(value, "int_type")
                same = self.call(self.word("equal"), [f"ptr {value}", f"ptr {self.word(f'value{k}')}", "i32 2"], "i32")
                self.need_same(same, 1, "i32")
        else:
            self.need(self.value(f"xor i1 {other}, true"))

    def argument(self, k: int, argument: DoorArgument) -> str:
        """Where the elements of an argument lie, with its sizes known."""
        value = self.passed(k)
        if argument.scalar == NUMPY_SCALAR:
            self.need_type(value, f"scalar{k}")
            return self.at(value, ELEMENT)
        if argument.scalar:
            return self.number(value, argument)
        if self.form.held and self.form.held[k]:
            self.need_type(value, "buffer_type")
        if self.form.buffers == "list" or (self.form.held and self.form.held[k]):
            value = self.held(value)
        places = argument.places or tuple(range(len(argument.axes)))
        self.array(value, f"argument{k}", sum(place >= 0 for place in places))
        flags = self.load("i32", self.at(value, FLAGS))
        wanted = ALIGNED | (WRITEABLE if argument.mutable else 0)
        wanted |= 0 if argument.strides or argument.places else CONTIGUOUS
        looked = wanted if argument.places else wanted | CONTIGUOUS  # the door for contiguous arrays serves these
        self.need_same(self.both(flags, looked, "i32"), wanted, "i32")
        dims = self.load("ptr", self.at(value, DIMS)) if argument.axes else ""
        for place, size in zip(places, argument.axes, strict=True):
            self.match(size, self.load("i64", self.at(dims, 8 * place)) if place >= 0 else 1)
        if argument.places and not argument.strides:
            self.need_dense(value, places, argument.axes, argument.dtype)
        strides = self.load("ptr", self.at(value, STRIDES)) if argument.strides else ""
        for place, stride in zip(places, argument.strides or (), strict=bool(argument.strides)):
            if place >= 0:
                self.stride(stride, self.load("i64", self.at(strides, 8 * place)), argument.dtype.size_in_bytes)
        return self.load("ptr", self.at(value, DATA))

    def need_dense(self, value: str, places: Sequence[int], axes: Sequence[Expression], dtype: DType) -> None:
        """An array lies without gaps, with its axes in this order."""
        strides = self.load("ptr", self.at(value, STRIDES))
        expected: Value = dtype.size_in_bytes
        for place, axis in reversed([*zip(places, axes, strict=True)]):
            size = self.size(axis, self.known)
            if place < 0 or size == 1:
                continue
            same = self.compare("eq", self.load("i64", self.at(strides, 8 * place)), expected)
            self.need(self.either(same, self.compare("eq", size, 1), "i1"))
            expected = self.mul(expected, size)

    def held(self, value: str) -> str:
        """The array that a buffer holds, or what is not a buffer."""
        array_or_value = self.variable("ptr", value)
        with self.when(self.compare("eq", self.load("ptr", self.at(value, TYPE)), self.word("buffer_type"), "ptr")):
            array = self.load("ptr", self.at(value, self.word("buffer_array", "i64")))
            self.need(self.compare("ne", array, "null", "ptr"))
            array_or_value.set(array)
        return array_or_value.value()

    def array(self, value: str, word: str, rank: int) -> None:
        """An array of a dtype and a rank."""
        self.need_type(value, "array_type")
        self.need_same(self.load("ptr", self.at(value, DTYPE)), self.word(word))
        self.need_same(self.load("i32", self.at(value, RANK)), rank, "i32")

    def stride(self, stride: DimNumber | DimName, value: str, width: int) -> None:
        """A stride, which arrays count in bytes and entries in elements."""
        if isinstance(stride, DimNumber):
            self.need_same(value, stride.value * width, "i64")
            return
        self.need_same(self.value(f"srem i64 {value}, {width}"), 0, "i64")
        self.match(stride, self.value(f"sdiv i64 {value}, {width}"))

    def number(self, value: str, argument: DoorArgument) -> str:
        """A number of Python's as an element on the stack; a miss where it is not plain that it fits."""
        block, dtype = self.block(1), argument.dtype
        if argument.scalar == "bool":
            true = self.compare("eq", value, self.word("true"), "ptr")
            self.need(self.either(true, self.compare("eq", value, self.word("false"), "ptr"), "i1"))
            self.store("i8", self.value(f"zext i1 {true} to i8"), block)
        elif dtype.is_float():
            self.store_real(self.real(value, argument), dtype, block)
        else:
            self.store_whole(self.whole(value), dtype, block)
        return block

    def whole(self, value: str) -> str:
        """An int that 64 bits hold."""
        self.need_type(value, "int_type")
        over = self.block(1)
        wide = self.call(self.word("to_int"), [f"ptr {value}", f"ptr {over}"], "i64")
        self.need_same(self.load("i32", over), 0, "i32")
        return wide

    def real(self, value: str, argument: DoorArgument) -> str:
        """A float, or an int that the element's dtype holds exactly."""
        if argument.scalar == "float":
            self.need_type(value, "float_type")
            return self.load("double", self.at(value, FLOAT))
        if argument.scalar == "int":
            return self.real_of_int(self.whole(value), argument.dtype)
        number = self.variable("double", "0.0")
        is_float = self.compare("eq", self.load("ptr", self.at(value, TYPE)), self.word("float_type"), "ptr")
        with self.when(is_float):
            number.set(self.load("double", self.at(value, FLOAT)))
        with self.when(self.value(f"xor i1 {is_float}, true")):
            number.set(self.real_of_int(self.whole(value), argument.dtype))
        return number.value()

    # what has to hold

    def product(self, axes: Sequence[object], sizes: Sequence[Value]) -> Value:
        """The number of elements; computed once for axes of the same names."""
        if tuple(axes) not in self.counts:
            self.counts[tuple(axes)] = self.elements(sizes)
        return self.counts[tuple(axes)]

    def large(self, shapes: Sequence[Sequence[Value]]) -> str:
        """Whether a tensor has more elements than one thread shall do."""
        tensors: list[tuple[Sequence[object], Sequence[Value]]] = [
            (a.axes, [self.size(axis, self.known) for axis in a.axes]) for a in self.spec.arguments
        ]
        tensors += [(o.axes, sizes) for o, sizes in zip(self.spec.outputs, shapes, strict=False)]
        tensors += [(axes, [self.size(axis, self.known) for axis in axes]) for axes in self.spec.temps]
        large = "false"
        for axes, sizes in tensors:
            known = len(self.counts)
            count = self.product(axes, sizes)
            if len(self.counts) > known:
                large = self.either(large, self.compare("sgt", count, self.spec.small), "i1")
        return large

    def need_apart(self, inputs: Sequence[str]) -> None:
        """What is changed in place shares no memory with other inputs."""
        arguments = self.spec.arguments
        for k, argument in enumerate(arguments):
            for other, theirs in enumerate(arguments if argument.mutable else ()):
                seen = theirs.scalar or other == k or (theirs.mutable and other < k)
                if not seen:
                    self.need_disjoint(inputs[k], argument, inputs[other], theirs)

    def need_disjoint(self, a: str, first: DoorArgument, b: str, second: DoorArgument) -> None:
        """Two row-major tensors share no memory."""
        ends = []
        for start, tensor in ((a, first), (b, second)):
            count = self.product(tensor.axes, [self.size(axis, self.known) for axis in tensor.axes])
            ends.append(self.at(start, self.mul(count, tensor.dtype.size_in_bytes)))
        before = self.compare("ule", ends[0], b, "ptr")
        self.need(self.either(before, self.compare("ule", ends[1], a, "ptr"), "i1"))

    # what is given back

    def outputs(self, shapes: Sequence[Sequence[Value]], inputs: Sequence[str]) -> list[str]:
        """The arrays for outputs: new ones, or what the caller gives."""
        made: list[str] = []
        for k, (output, sizes) in enumerate(zip(self.spec.outputs, shapes, strict=True)):
            if not self.given:
                made.append(self.new(k, sizes, made))
                continue
            array = self.variable("ptr", self.given)
            none = self.compare("eq", self.given, "null", "ptr")
            with self.when(self.value(f"xor i1 {none}, true")):
                self.array(self.given, f"output{k}", len(sizes))
                places = output.places or tuple(range(len(sizes)))
                wanted = ALIGNED | WRITEABLE | (0 if output.places else CONTIGUOUS)
                self.need_same(self.both(self.load("i32", self.at(self.given, FLAGS)), wanted, "i32"), wanted, "i32")
                dims = self.load("ptr", self.at(self.given, DIMS)) if sizes else ""
                for place, size in zip(places, sizes, strict=True):
                    self.need_same(self.load("i64", self.at(dims, 8 * place)), size, "i64")
                if output.places:
                    self.need_dense(self.given, places, output.axes, output.dtype)
                data = self.load("ptr", self.at(self.given, DATA))
                like = DoorArgument(output.dtype, output.axes)  # type: ignore[arg-type]
                for argument, value in zip(self.spec.arguments, inputs, strict=True):
                    if not argument.scalar:
                        self.need_disjoint(data, like, value, argument)
                self.call(self.word("incref"), [f"ptr {self.given}"])
            with self.when(none):
                array.set(self.new(k, sizes, made))
            made.append(array.value())
        return made

    def new(self, k: int, sizes: Sequence[Value], before: Sequence[str]) -> str:
        """An array for an output. A large one takes the memory of an earlier one, which `take_output` finds; it is a
        miss where there is no memory."""
        output, array = self.spec.outputs[k], self.variable("ptr", "null")
        small = (LARGE_BYTES - 1) // output.dtype.size_in_bytes
        large = self.compare("sgt", self.product(output.axes, sizes), small)
        with self.when(large):
            array.set(self.called("take_output", [k, *sizes]))
            self.or_leave(array.value(), before)
            absent = self.compare("eq", array.value(), self.word("none"), "ptr")
            with self.when(absent):
                self.drop([array.value(), *before])
            self.need(self.value(f"xor i1 {absent}, true"))
        with self.when(self.value(f"xor i1 {large}, true")):
            array.set(self.fresh_array(k, sizes, before))
        return array.value()

    def fresh_array(self, k: int, sizes: Sequence[Value], before: Sequence[str]) -> str:
        """A new array of NumPy's; where there is no memory for it, Python's error is passed on."""
        output, dims = self.spec.outputs[k], self.block(len(sizes))
        for place, size in zip(output.places or range(len(sizes)), sizes, strict=True):
            self.store("i64", size, self.at(dims, 8 * place))
        strides = f"ptr {self.strides_of(sizes, output)}" if output.places else "ptr null"
        dtype = self.word(f"output{k}")
        self.call(self.word("incref"), [f"ptr {dtype}"])  # it takes one
        what = [f"ptr {self.word('array_type')}", f"ptr {dtype}", f"i32 {len(sizes)}", f"ptr {dims}"]
        made = self.call(self.word("allocate"), [*what, strides, "ptr null", "i32 0", "ptr null"], "ptr")
        self.or_leave(made, before)
        return made

    def strides_of(self, sizes: Sequence[Value], output: DoorOutput) -> str:
        """The strides of a new array whose axes lie in another order, in bytes."""
        strides = self.block(len(sizes))
        stride: Value = output.dtype.size_in_bytes
        for place, size in reversed([*zip(output.places, sizes, strict=True)]):
            self.store("i64", stride, self.at(strides, 8 * place))
            stride = self.mul(stride, self.value(f"call i64 @llvm.smax.i64(i64 {size}, i64 1)"))
        return strides

    def give(self, objects: Sequence[str], shapes: Sequence[Sequence[Value]]) -> None:
        """The result."""
        if self.form.buffers:
            objects = self.buffers(objects)
        if self.form.buffers == "list":
            self.leave(self.gathered("list", objects))
        elif len(objects) == 1:
            self.leave(objects[0])
        elif objects:
            self.leave(self.gathered("tuple", objects))
        else:
            none = self.word("none")
            self.call(self.word("incref"), [f"ptr {none}"])
            self.leave(none)

    def buffers(self, arrays: Sequence[str]) -> list[str]:
        """Buffers over arrays."""
        made: list[str] = []
        for k, array in enumerate(arrays):
            buffer = self.call(self.word("object"), [f"ptr {self.word(f'buffer_class{k}')}", "i64 0"], "ptr")
            self.or_leave(buffer, [*made, *arrays[k:]])
            slots = (("buffer_dtype", self.word(f"buffer_of{k}")), ("buffer_device", self.word("device")))
            for slot, value in slots:
                self.call(self.word("incref"), [f"ptr {value}"])
                self.store("ptr", value, self.at(buffer, self.word(slot, "i64")))
            self.store("ptr", array, self.at(buffer, self.word("buffer_array", "i64")))
            made.append(buffer)
        return made

    def gathered(self, kind: str, objects: Sequence[str]) -> str:
        """A list or a tuple, which takes the objects."""
        made = self.call(self.word(kind), [f"i64 {len(objects)}"], "ptr")
        self.or_leave(made, objects)
        for k, each in enumerate(objects):
            self.call(self.word(f"put_{kind}"), [f"ptr {made}", f"i64 {k}", f"ptr {each}"], "i32")
        return made

    def fail(self, context: str, status: str, objects: Sequence[str]) -> None:
        """Raises what the kernel has reported: `fail(context, status, *args)` makes the exception of it."""
        self.drop(objects)
        passed = self.block(2 + len(self.spec.arguments))
        address = self.value(f"ptrtoint ptr {context} to i64")
        numbers = [self.call(self.word("integer"), [f"i64 {value}"], "ptr") for value in (address, status)]
        for k, number in enumerate(numbers):
            self.or_leave(number, numbers[:k])
            self.store("ptr", number, self.at(passed, 8 * k))
        for k in range(len(self.spec.arguments)):
            self.store("ptr", self.passed(k), self.at(passed, 16 + 8 * k))
        count = f"i64 {2 + len(self.spec.arguments)}"
        arguments = [f"ptr {self.word('fail')}", f"ptr {passed}", count, "ptr null"]
        error = self.call(self.word("call"), arguments, "ptr")
        self.drop(numbers)
        with self.when(self.compare("ne", error, "null", "ptr")):
            kind = self.load("ptr", self.at(error, TYPE))
            self.call(self.word("set_error"), [f"ptr {kind}", f"ptr {error}"])
            self.drop([error])
        self.leave("null")
