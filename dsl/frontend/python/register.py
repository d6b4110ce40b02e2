"""`@register("name")`: records a kernel and reads its signature. Compiles nothing.

See also `collect`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...diagnostics.collecting import BROKEN, Broken, collect
from ...diagnostics.errors import CompileError, EinkornError, InternalError, joined
from ...diagnostics.extension_points import ExtensionPoint
from ...diagnostics.places import Place, user_place
from ...diagnostics.rich import Rich
from ...diagnostics.shield import raise_if_of_handler
from ...language.annotations import BOUNDS, DeviceContext, TensorAnnotation
from ...language.foreign_names import of_dtype
from ...language.imports import of_unknown, with_imports
from ...language.stubs import Stub
from ...signature.check import schema_mistakes
from ...signature.schema import PARAMETER_KINDS, ContextArgument, Form, OpSchema, Parameter, Role, TensorArgument
from ...signature.tuning import TuningSpace
from ...types.dtype import ANY, DType, SIMDType
from ..base import Reference
from ..call_types import CalledAs, Inputs, Outputs, Whole
from ..caller import Called, show_help
from .auxiliary import late_dims, make_reference
from .names import AlreadyReported
from .statements import find_function, text_file

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, Protocol, overload

    from ...language.members import OutputMark, OutputTensor, VariadicMark
    from ..call_types import Four, Nothing, One, Three, Two

    A = TypeVar("A")
    B = TypeVar("B")
    C = TypeVar("C")
    P = ParamSpec("P")

_NAME = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*\Z")
KERNEL_FILE = "__einkorn_kernel_file__"  # a name of the modules that kernel files are imported as
REGISTERED = "__einkorn_registered__"  # where a module keeps its kernels, whatever becomes of their functions' names
_FASTMATH = frozenset({"contract", "reassoc"})
_RANK_IS_KNOWN = frozenset({"EK0306", "EK0308"})  # mistakes in a dims text that leave the number of axes known


class Kernel(CalledAs[Inputs, Whole, Outputs], Called, Rich):
    """A registered kernel: called like a function, staged in graphs, or compiled for packages."""

    def __init__(self, schema: OpSchema, function: FunctionType) -> None:
        self.schema = schema
        self.function = function
        self.__wrapped__ = function  # whose text `inspect` and IPython's `??` show
        self.numpy_reference: Reference | None = None
        self.shape_function: FunctionType | None = None
        self.tuning: TuningSpace | None = None  # which parameters are chosen by trying
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.loaded: Any = None  # its program, as `package.library.loaded_kernel` made it last
        self.calls: Any = None  # what `graph.interop` keeps of calls from outside of graphs

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`@op.reference`: records a NumPy function that says what the op computes; tests compare with it.

        It takes the op's inputs as NumPy arrays in order and parameters as keywords, and returns an array, or a tuple
        of arrays for several outputs. See `base.Reference`.

        Raises:
            CompileError: EK0340 it does not take the op's inputs.
        """
        self.numpy_reference = make_reference(self.schema, function, self.__name__)
        return function

    def shape(self, function: Any) -> Any:
        """`@op.shape`: records a function of the language that computes sizes of outputs which no type determines.

        It takes the op's inputs in order and parameters as keywords, runs before the op, and returns an Int for each
        named dim of the outputs that no input and no parameter determines, in the order of the signature.

        Raises:
            CompileError: EK0340 it does not take the op's inputs, EK0342 there is no dim to compute.
        """
        late = late_dims(self.schema, function, self.__name__)
        self.schema = dataclasses.replace(self.schema, late=late)
        self.shape_function = function
        self.__class__ = Kernel  # nothing that was made of the signature before serves its calls any more
        return function

    def become(self, newer: Kernel) -> None:
        """Takes what another kernel is: the one that a module has after it was loaded again."""
        kept = {"calls": None, "loaded": None, "watchers": vars(self).get("watchers", ())}
        self.__dict__.update({"gradient": None} | vars(newer) | kept)
        self.__class__ = Kernel  # as in `shape`
        self._gradient_changed()

    def __repr__(self) -> str:
        return f"<kernel {self.schema.name}>"


show_help(Kernel)


class BrokenKernel(Broken):
    """A kernel with a mistake in its signature: what is known of it, and the arguments and parameters that are not."""

    def __init__(
        self, error: EinkornError | None, function: FunctionType, schema: OpSchema, unknown: Iterable[str]
    ) -> None:
        super().__init__(error)
        self.function = function
        self.schema = schema
        self.unknown = tuple(sorted(unknown))


if TYPE_CHECKING:
    MYPY = False  # mypy reads this name as True
    if MYPY:

        class Registering(Protocol):
            """What `@register("name")` makes of a function; the plugin `einkorn.mypy` says it exactly."""

            def __call__(self, function: Callable[..., Any], /) -> Kernel: ...

    else:

        class Registering(Protocol):
            """What `@register("name")` makes of a function: outputs, which come first, are not arguments of a call."""

            @overload
            def __call__(self, function: type, /) -> Kernel: ...
            # Any number of tensors for one argument: the calls are not checked.
            @overload
            def __call__(self, function: Callable[Concatenate[VariadicMark, P], Any], /) -> Kernel: ...
            @overload
            def __call__(self, function: Callable[Concatenate[A, VariadicMark, P], Any], /) -> Kernel: ...
            @overload
            def __call__(self, function: Callable[Concatenate[A, B, VariadicMark, P], Any], /) -> Kernel: ...
            @overload
            def __call__(self, function: Callable[Concatenate[A, B, C, VariadicMark, P], Any], /) -> Kernel: ...
            @overload
            def __call__(
                self, function: Callable[Concatenate[OutputMark, OutputMark, OutputMark, OutputMark, P], Any], /
            ) -> Kernel[
                P,
                Concatenate[OutputTensor, OutputTensor, OutputTensor, OutputTensor, P],
                Four,
            ]: ...
            @overload
            def __call__(
                self, function: Callable[Concatenate[OutputMark, OutputMark, OutputMark, P], Any], /
            ) -> Kernel[P, Concatenate[OutputTensor, OutputTensor, OutputTensor, P], Three]: ...
            @overload
            def __call__(
                self, function: Callable[Concatenate[OutputMark, OutputMark, P], Any], /
            ) -> Kernel[P, Concatenate[OutputTensor, OutputTensor, P], Two]: ...
            @overload
            def __call__(
                self, function: Callable[Concatenate[OutputMark, P], Any], /
            ) -> Kernel[P, Concatenate[OutputTensor, P], One]: ...
            @overload
            def __call__(self, function: Callable[P, Any], /) -> Kernel[P, P, Nothing]: ...


def register(
    name: str,
    *,
    fuse: bool = True,
    fastmath: Iterable[str] = (),
    writes_once: bool = False,
    reads: Mapping[str, int] | None = None,
    override: bool = False,
    batch: str = "",
    move: str = "",
    laws: Iterable[str] = (),
    neutral: Mapping[str, float] | None = None,
    effects: bool = False,
) -> Registering:
    """Records the function under it as the kernel of the op `name`.

    It also takes a class: its static method `execute` is the kernel, and `shape`, if any, what `@op.shape` is given.

    Args:
        name: the op's name, alone or namespaced: `"rms_norm"`, `"mylib::rms_norm"`.
        fuse: False disables fusion of this op with its neighbours.
        fastmath: liberties with floating point: "contract" (fuse a*b+c), "reassoc" (reorder sums).
        writes_once: a promise that lets what follows the op run in its stores: every output element is stored
            exactly once, and outputs are not read.
        reads: a promise that lets what precedes the op run in its reads: what it costs to compute an element of an
            input at every read, in units of computing it once: 2 for an op that reads each element twice.
        override: takes the place of a built-in op of this name, for the dtypes of the kernel, or of another library's.
        batch: the name of a pack that the dims of all outputs and of some inputs begin with, `b` in "*b n": a promise
            that its members are computed independently. JAX and PyTorch then split calls over devices along it.
        move: a promise that the op only takes elements: "reshape", "permute", "broadcast", "copy", "slice" or "concat".
        laws: a promise of laws that hold to the bit: "idempotent", "involution" or "cast".
        neutral: a promise of two inputs: the number that makes one of them change nothing, such as `{"y": 1}`.
        effects: the op does more than to store its outputs: it runs in its turn, at each call, read or not.

    Raises:
        CompileError: the name, an annotation or a parameter is not as the language wants it.
    """
    if callable(name):
        place = user_place()
        raise CompileError("@register needs the op's name", code="EK0107", place=place, hint='write @register("name")')

    promises = OpSchema(
        name,
        (),
        fuse=fuse,
        fastmath=frozenset(fastmath),
        writes_once=writes_once,
        reads=tuple(sorted(dict(reads or {}).items())),
        override=override is True,
        batch=batch,
        move=move,
        laws=frozenset(laws),
        neutral=tuple(sorted(dict(neutral or {}).items())),
        effects=effects is True,
    )

    def record(function: Callable[..., Any]) -> Kernel:
        return _of_class(function, record) if isinstance(function, type) else _recorded(function, promises)

    return record


def _recorded(function: Callable[..., Any], promises: OpSchema) -> Kernel:
    """The kernel of a function, in its module's list; `promises` are what `@register` was given."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise CompileError(
            "@register belongs on a function defined with `def`, or on a class with `execute`",
            code="EK0107",
            place=user_place(),
        )
    reader = _SignatureReader(promises.name, function)
    schema = reader.schema(promises)
    mistakes = [*reader.errors, *schema_mistakes(schema, whole=reader.sound)]
    registered = _registered(function.__globals__, promises.name)
    if reader.sound and not mistakes:
        _follow_autoreload()
        registered.append(Kernel(schema, function))
        return registered[-1]
    error = joined(mistakes) if mistakes else None
    if error is not None and not collect(error):
        raise error
    unknown = _unknown(schema, reader.unknown, mistakes)
    registered.append(cast(Kernel, BrokenKernel(error or reader.cause, function, schema.without(unknown), unknown)))
    return registered[-1]


def _registered(names: dict[str, Any], op: str) -> list[Kernel]:
    """Where a module keeps its kernels. Of one name the last counts, as in Python; a kernel file has each name once."""
    registered: list[Kernel] = names.setdefault(REGISTERED, [])
    if KERNEL_FILE not in names:
        registered[:] = [kernel for kernel in registered if kernel.schema.name != op]
    return registered


def _follow_autoreload() -> None:
    """Registers with IPython's `autoreload`, where it is on, how names that were imported from a module follow their
    kernels.

    IPython does that with functions and classes.
    """
    rules = getattr(sys.modules.get("IPython.extensions.autoreload"), "UPDATE_RULES", None)
    if rules is not None and _RELOADED not in rules:
        rules.append(_RELOADED)


_RELOADED = (lambda old, new: isinstance(old, Kernel) and isinstance(new, Kernel), Kernel.become)


def _of_class(owner: type, record: Callable[[Callable[..., Any]], Kernel]) -> Kernel:
    """The kernel of a class with static methods `execute` and, perhaps, `shape`.

    Raises:
        CompileError: EK0107, they are invalid.
    """
    results: dict[str, Callable[..., Any]] = {}
    for name in ("execute", "shape"):
        method = vars(owner).get(name)
        if isinstance(method, staticmethod):
            results[name] = method.__func__
        elif method is not None or name == "execute":
            raise CompileError(
                f"class '{owner.__name__}' has no static method '{name}'",
                code="EK0107",
                place=user_place(),
                hint=f"write @staticmethod over `def {name}(...)`",
            )
    results["execute"].__doc__ = results["execute"].__doc__ or owner.__doc__
    kernel = record(results["execute"])
    if "shape" in results and isinstance(kernel, Kernel):
        kernel.shape(results["shape"])
    return kernel


def _unknown(schema: OpSchema, unread: set[str], mistakes: list[CompileError]) -> set[str]:
    """The arguments and parameters of a signature of which too little is known for a look at the kernel's body."""
    unknown = unread | {error.argument for error in mistakes if error.argument and error.code not in _RANK_IS_KNOWN}
    counts = {p.name for p in schema.parameters if p.kind == "int"} - unknown
    return unknown | {a.name for a in schema.tensors if not (a.count in ("", *counts) or a.count.isdecimal())}


class _SignatureReader:
    """Reads the schema off a function's signature."""

    def __init__(self, name: str, function: FunctionType) -> None:
        self.name = name
        self.function = function
        self.typevars: dict[str, tuple[DType, ...]] = {}
        self.places = _argument_places(function)
        self.file = text_file(function)
        self.place = Place(self.file, function.__code__.co_firstlineno)
        self.errors: list[CompileError] = []
        self.unknown: set[str] = set()  # arguments and parameters that could not be read
        self.cause: EinkornError | None = None  # a mistake that was noted elsewhere, of the last of these
        self.sound = True  # whether every part could be read

    def note(self, error: CompileError) -> None:
        """Keeps a mistake; the rest of the signature is still read."""
        self.errors.append(error)
        self.sound = False

    def fail(self, message: str, code: str, argument: str | None = None, hint: str | None = None) -> CompileError:
        place = self.places.get(argument or "", self.place)
        hint = with_imports(hint, place)
        return CompileError(message, code=code, place=place, op=self.name, argument=argument, hint=hint)

    def schema(self, promises: OpSchema) -> OpSchema:
        """What can be read, with the promises of `@register`; `errors` says what is wrong with the rest."""
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            self.note(self.fail(f"{self.name!r} is not an op name", "EK0107", hint='use "name" or "library::name"'))
        for flag in sorted(promises.fastmath - _FASTMATH):
            self.note(self.fail(f"unknown fastmath flag '{flag}'", "EK0107", hint="known: contract, reassoc"))
        arguments: list[TensorArgument | ContextArgument] = []
        parameters: list[Parameter] = []
        signature = inspect.signature(self.function).parameters
        for parameter in signature.values():
            try:
                if parameter.kind is parameter.KEYWORD_ONLY:
                    parameters.append(self.parameter(parameter))
                elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                    arguments.append(self.argument(parameter))
                else:
                    text = f"op '{self.name}' takes star arguments"
                    raise self.fail(text, "EK0102", parameter.name, "name every argument")
            except CompileError as error:
                self.note(error)
                self.unknown.add(parameter.name)
            except AlreadyReported as reported:
                self.sound, self.cause = False, reported.error
                self.unknown.add(parameter.name)
        if self.sound and not any(isinstance(a, TensorArgument) and a.role is not Role.INPUT for a in arguments):
            hint = 'its outputs come first: out: OutputTensor[T, "n"]'
            self.note(self.fail(f"op '{self.name}' has no output", "EK0301", hint=hint))
        for argument, _ in promises.reads:
            if argument not in signature:
                text = f"reads= names '{argument}', which is not an argument of '{self.name}'"
                self.note(self.fail(text, "EK0107"))
        return dataclasses.replace(
            promises,
            arguments=tuple(arguments),
            parameters=tuple(parameters),
            typevars=tuple(self.typevars.items()),
            doc=inspect.getdoc(self.function) or "",
            place=self.place,
        )

    def argument(self, parameter: inspect.Parameter) -> TensorArgument | ContextArgument:
        annotation = self.annotation(parameter)
        if isinstance(annotation, Broken):
            raise AlreadyReported(annotation.error)
        if annotation is DeviceContext:
            return ContextArgument(parameter.name)
        if isinstance(annotation, TypeVar | DType) or (isinstance(annotation, SIMDType) and annotation.is_scalar):
            annotation = TensorAnnotation(Role.INPUT, annotation, "", Form.SCALAR)
        if not isinstance(annotation, TensorAnnotation):
            scalar = {"int": "Int", "float": "Float64", "bool": "Bool"}.get(getattr(annotation, "__name__", ""))
            element = "T" if isinstance(self.function.__globals__.get("T"), TypeVar) else "float32"
            role = "Output" if parameter.name.startswith("out") else "Input"
            meant = (
                f"`{parameter.name}: {scalar}` for a number"
                if scalar
                else f'`{parameter.name}: {role}Tensor[{element}, "n"]`'
            )
            hint = f"write {meant}, or put compile-time parameters after a `*`"
            if scalar and parameter.default is not parameter.empty:
                hint = f"a compile-time parameter, which may have a default, comes after a `*`: `*, {parameter}`"
            raise self.fail(
                f"argument '{parameter.name}' of op '{self.name}' needs the annotation of a tensor or of a scalar",
                "EK0301",
                parameter.name,
                hint,
            )
        if parameter.default is not parameter.empty:
            what = "a run-time number" if annotation.form is Form.SCALAR else "a tensor"
            text = f"argument '{parameter.name}' of op '{self.name}' is {what} and has no default"
            self.note(self.fail(text, "EK0301", parameter.name, _without_default(parameter, annotation.form)))
        dtype = self.dtype(annotation.dtype, parameter.name)
        place = self.places.get(parameter.name, self.place)
        form, count = annotation.form, annotation.count
        return TensorArgument(parameter.name, annotation.role, dtype, annotation.dims, place, form, count)

    def annotation(self, parameter: inspect.Parameter) -> Any:
        annotation = parameter.annotation
        if isinstance(annotation, str):
            names = dict(inspect.getclosurevars(self.function).nonlocals)
            try:
                annotation = eval(annotation, self.function.__globals__, names)
            except Exception as error:
                raise_if_of_handler(error)
                if isinstance(error, NameError) and error.name in self.function.__globals__.get(BROKEN, {}):
                    raise AlreadyReported(self.function.__globals__[BROKEN][error.name]) from None
                reason = error.message if isinstance(error, EinkornError) else error
                unknown = error.name if isinstance(error, NameError) else None
                hint = of_unknown(unknown, self.function.__globals__) if unknown else None
                text = f"the annotation of '{parameter.name}' cannot be read: {reason}"
                raise self.fail(text, "EK0301", parameter.name, hint) from None
        return annotation

    def dtype(self, dtype: object, argument: str) -> DType | str:
        if isinstance(dtype, SIMDType) and dtype.is_scalar:
            return dtype.dtype
        if isinstance(dtype, DType):
            return dtype
        if isinstance(dtype, TypeVar):
            self.typevars[dtype.__name__] = self.bound(dtype, argument)
            return dtype.__name__
        if isinstance(dtype, Broken):
            raise AlreadyReported(dtype.error)
        raise self.fail(
            f"argument '{argument}' of op '{self.name}' needs a dtype, not {_named(dtype)}",
            "EK0301",
            argument,
            of_dtype(dtype) or "use a dtype such as float32, or a TypeVar bound by Numeric, Floating or Integral",
        )

    def bound(self, variable: TypeVar, argument: str) -> tuple[DType, ...]:
        if variable.__constraints__:
            listed: list[DType] = []
            for constraint in variable.__constraints__:
                dtype = constraint.dtype if isinstance(constraint, SIMDType) else constraint
                if not isinstance(dtype, DType):
                    raise self.fail(
                        f"TypeVar '{variable.__name__}' is constrained to {_named(constraint)}, which is not a dtype",
                        "EK0301",
                        argument,
                    )
                listed.append(dtype)
            return tuple(listed)
        bound = variable.__bound__
        if bound is None:
            return ANY
        if bound in BOUNDS:
            return tuple(bound.dtypes)
        raise self.fail(
            f"TypeVar '{variable.__name__}' is bound by {_named(bound)}",
            "EK0301",
            argument,
            "bound it by Numeric, Floating, Integral or Element, or list dtypes",
        )

    def parameter(self, parameter: inspect.Parameter) -> Parameter:
        annotation = parameter.annotation
        if not isinstance(annotation, str) or annotation not in ("bool", "int", "float", "str", "DType"):
            annotation = self.annotation(parameter)
            if isinstance(annotation, Broken):
                raise AlreadyReported(annotation.error)
            of_ints = getattr(annotation, "__origin__", None) is tuple and {*annotation.__args__} <= {int, Ellipsis}
            annotation = "tuple" if of_ints else getattr(annotation, "__name__", str(annotation))
            annotation = "tuple of others" if annotation == "tuple" and not of_ints else annotation
        kinds = {cls.__name__: kind for kind, cls in PARAMETER_KINDS.items()}
        kind = kinds.get(annotation)
        if kind is None:
            raise self.fail(
                f"parameter '{parameter.name}' of op '{self.name}' needs the type bool, int, float, str, DType or "
                "tuple[int, ...]",
                "EK0302",
                parameter.name,
                _typed(parameter),
            )
        required = parameter.default is parameter.empty
        default = None if required else parameter.default
        right = type(default) is PARAMETER_KINDS[kind] or (kind == "float" and type(default) is int)
        right = right and (kind != "ints" or all(type(each) is int for each in default or ()))
        if not required and not right:
            raise self.fail(
                f"the default of parameter '{parameter.name}' is {default!r}, which is not of type {annotation}",
                "EK0302",
                parameter.name,
            )
        if kind == "float" and default is not None:
            default = float(default)
        return Parameter(parameter.name, kind, required, default)


def _typed(parameter: inspect.Parameter) -> str | None:
    """The hint for a parameter without a type: what its default is."""
    kind = type(parameter.default)
    known = kind in PARAMETER_KINDS.values() and parameter.annotation is parameter.empty
    return f"write {parameter.name}: {kind.__name__} = {parameter.default!r}" if known else None


def _without_default(parameter: inspect.Parameter, form: Form) -> str:
    """The hint for a default of what comes with each call: a number that is a default is one at compile time."""
    kind = type(parameter.default)
    if form is not Form.SCALAR or kind not in PARAMETER_KINDS.values():
        return "leave the default out; each call gives the argument"
    known = f"{parameter.name}: {kind.__name__} = {parameter.default!r}"
    return f"leave the default out; or put `{known}` after a `*`, as a parameter that is known at compile time"


def _named(value: Any) -> str:
    """A thing in an annotation, as its author wrote it."""
    if isinstance(value, SIMDType):
        return str(value)
    name = getattr(value, "__name__", None)
    if isinstance(value, type) and value.__module__ != "builtins":
        return f"{value.__module__}.{name}"
    return name or repr(value)


def _argument_places(function: FunctionType) -> dict[str, Place]:
    """Where each argument stands in the text; empty when the text is not at hand."""
    try:
        args = find_function(function).args
    except (OSError, SyntaxError, CompileError) as error:
        raise_if_of_handler(error)
        return {}
    file = text_file(function)
    stars = [star for star in (args.vararg, args.kwarg) if star is not None]
    return {
        a.arg: Place(file, a.lineno, a.col_offset + 1, a.end_lineno or a.lineno, (a.end_col_offset or 0) + 1)
        for a in args.args + args.kwonlyargs + stars
    }


# *** functions of the language that are written in the language ***

_IMPLEMENTATIONS: dict[str, FunctionType] = {}
# What the standard library implements is recorded when these are loaded.
MATHEMATICS: ExtensionPoint[ModuleType] = ExtensionPoint("stdlib.math.functions")
GRIDS: ExtensionPoint[ModuleType] = ExtensionPoint("stdlib.algorithms.collectives")


def implements(what: Stub | str | Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a function of the standard library as the meaning of a library stub, or of an operator of floats."""
    meant = what if isinstance(what, str) else what.name

    def record(function: Callable[..., Any]) -> Callable[..., Any]:
        assert isinstance(function, FunctionType)
        if meant in _IMPLEMENTATIONS and _IMPLEMENTATIONS[meant].__module__ != function.__module__:
            raise InternalError(f"'{meant}' is implemented twice", code="EK0905")
        _IMPLEMENTATIONS[meant] = function
        return function

    return record


def complex_name(name: str) -> str:
    """The name under which the standard library implements an operator or a function on complex numbers."""
    return f"complex.{name}"


def fast_name(name: str) -> str:
    """The name under which the standard library implements a function that is called with `fast=True`."""
    return f"fast.{name}"


def has_implementation(meant: str) -> bool:
    """Whether the standard library, once it is loaded, says what a library stub or an operator does."""
    if meant not in _IMPLEMENTATIONS:
        MATHEMATICS.get()
    return meant in _IMPLEMENTATIONS


def implementation(meant: str) -> FunctionType:
    """The function that says what a library stub does. The standard library is loaded on first use.

    Raises:
        InternalError: no function of the standard library is registered for the stub with `@implements`.
    """
    if meant not in _IMPLEMENTATIONS:
        (GRIDS if meant.startswith("gpu.") else MATHEMATICS).get()
    if meant not in _IMPLEMENTATIONS:
        raise InternalError(f"'{meant}' has no implementation: no function under @implements({meant})", code="EK0905")
    return _IMPLEMENTATIONS[meant]
