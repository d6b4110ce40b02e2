"""`Module`: a tree of layers, their parameters, and what is computed from them.

A parameter is a tensor with elements, or a `Weight` of a graph. The code of a layer is written once, with functions of
`einkorn.functional`, which take tensors and values of graphs: a call computes at once, or stages ops in a graph.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, Self, TypeVar, dataclass_transform, overload

from ...dsl.environment.tracebacks import placed
from ..driver.buffer import Buffer
from ..driver.devices import CPU, Device, DeviceRef
from ..eager.tensor import Tensor
from ..engine.model import Model
from ..engine.session import InferenceSession
from ..quantization.encodings import QuantizationEncoding
from ..staging.graph import Graph
from ..staging.value import TensorValue
from ..staging.weight import Weight
from ..types.tensor_type import BufferType, TensorType
from .splitting import ParameterSplit
from .state import mismatch, misused, refuse, tensor_of

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
Parameter = Tensor | TensorValue


class Module(Generic[P, R]):
    """A tree of modules with parameters. A subclass defines `forward`, and assigns tensors and modules to attributes.

    Attributes that are tensors or weights are its local parameters, those that are modules are its children, and all
    others are its own. The qualified name of a parameter is the names of the attributes on the way to it, with dots.

    Attributes:
        splits: how ranks share local parameters, by name. Loading takes whole arrays and keeps the part of this rank.
    """

    splits: Mapping[str, ParameterSplit] = MappingProxyType({})

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the module computes; subclasses define it.

        Raises:
            NotImplementedError: the subclass does not.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.forward(*args, **kwargs)

    # *** the tree ***

    @property
    def local_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module alone, by the names of their attributes."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor | TensorValue):
                yield name, value

    @property
    def children(self) -> Iterator[tuple[str, Module[..., Any]]]:
        """The modules that are attributes of this one."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    @property
    def descendants(self) -> Iterator[tuple[str, Module[..., Any]]]:
        """The children, and theirs, by qualified names."""
        for name, child in self.children:
            yield name, child
            for below, each in child.descendants:
                yield f"{name}.{below}", each

    @property
    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters by qualified names: those of this module, then those of each child."""
        yield from self.local_parameters
        for name, child in self.children:
            for below, parameter in child.parameters:
                yield f"{name}.{below}", parameter

    # *** transformations ***

    def apply_to_local_parameters(self, f: Callable[[str, Any], Any]) -> None:
        """Replaces each local parameter by f(name, parameter)."""
        for name, parameter in list(self.local_parameters):
            setattr(self, name, _checked(name, f(name, parameter)))

    def apply_to_parameters(self, f: Callable[[str, Any], Any]) -> None:
        """Replaces each parameter of the tree by f(qualified name, parameter)."""
        self.apply_to_local_parameters(f)
        for name, child in self.children:
            child.apply_to_parameters(lambda below, parameter, name=name: f(f"{name}.{below}", parameter))  # type: ignore[misc]

    def map_parameters(self, f: Callable[[str, Any], Any]) -> Self:
        """A new tree with f(qualified name, parameter) for each parameter; this one stays as it is."""
        made = copy.copy(self)
        for name, parameter in self.local_parameters:
            setattr(made, name, _checked(name, f(name, parameter)))
        for name, child in self.children:
            mapped = child.map_parameters(lambda below, parameter, name=name: f(f"{name}.{below}", parameter))  # type: ignore[misc]
            setattr(made, name, mapped)
        return made

    def to(self, device: Device | DeviceRef) -> Self:
        """Moves all parameters to a device; returns the module."""
        self.apply_to_parameters(lambda _, parameter: parameter.to(device))
        return self

    # *** loading ***

    @placed
    def load_state(self, lookup: Callable[[str, Any], Any]) -> None:
        """Replaces each parameter by lookup(qualified name, parameter), which may be any DLPack array.

        Quantised weights of GGUF files (`weights.data()`) are taken by layers that hold an encoding.

        Raises:
            StateError: EK0471, arrays that have another dtype or shape; all of them in one error.
        """
        results = {name: lookup(name, parameter) for name, parameter in self.parameters}
        self._replace(results, [], [])

    @placed
    def load_state_dict(self, state: Mapping[str, object], strict: bool = True) -> None:
        """Replaces each parameter by the array that `state` has under its qualified name.

        Args:
            state: DLPack arrays by name; those of files are `{name: w.data() for name, w in weights.items()}`.
            strict: whether names that no parameter has are an error.

        Raises:
            StateError: EK0471 (also a KeyError and a ValueError), missing names, names that no parameter has, other
                dtypes or shapes; all of them in one error, after which no parameter has changed.
        """
        if not isinstance(state, Mapping):
            raise misused("a state is a mapping from names to arrays", "state", "a mapping", type(state).__name__)
        names = [name for name, _ in self.parameters]
        missing = [name for name in names if name not in state]
        left_over = [name for name in state if name not in set(names)] if strict else []
        self._replace({name: state[name] for name in names if name in state}, missing, left_over)

    def _replace(self, state: Mapping[str, object], missing: Sequence[str], left_over: Sequence[str]) -> None:
        modules: dict[str, Module[..., Any]] = {"": self, **dict(self.descendants)}
        problems = [f"'{name}' is missing" for name in missing]
        taken = []
        for name, value in state.items():
            tensor, encoding = tensor_of(value)
            owner, _, attribute = name.rpartition(".")
            split = modules[owner].splits.get(attribute)
            tensor = tensor if split is None else split.part(tensor)
            trouble = modules[owner].misfit(attribute, tensor, encoding)
            problems += [] if trouble is None else [trouble.replace(f"'{attribute}'", f"'{name}'", 1)]
            taken.append((modules[owner], attribute, tensor, encoding))
        problems += [f"'{name}' is left over" for name in left_over]
        if problems:
            refuse(type(self).__name__, problems, missing, left_over)
        for module, attribute, tensor, encoding in taken:
            module.take(attribute, tensor, encoding)

    def misfit(self, name: str, value: Tensor, encoding: QuantizationEncoding | None) -> str | None:
        """What is wrong with a tensor for a local parameter; None if it fits."""
        if encoding is not None:
            return f"'{name}' is quantised in {encoding.name}, and {type(self).__name__} holds no encoding for it"
        return mismatch(name, getattr(self, name), value)

    def take(self, name: str, value: Tensor, encoding: QuantizationEncoding | None) -> None:
        """Replaces a local parameter by a tensor that fits; on its own device."""
        before = getattr(self, name)
        setattr(self, name, value if value.device == before.device else value.to(before.device))

    # *** compiling ***

    @placed
    def compile(
        self, *input_types: TensorType | BufferType, weights: Mapping[str, Any] | None = None
    ) -> CompiledModule[R]:
        """The module as one graph, compiled for inputs of these types; sizes may be names.

        Args:
            input_types: one for each positional argument of `forward`.
            weights: arrays by the names of parameters; the parameters themselves when left out.

        Returns:
            A function with the arguments of `forward`, which returns tensors in the structure that `forward` has.

        Raises:
            GraphError: EK0472 wrong input types, and the errors of graphs and of loading them.
        """
        for number, type_ in enumerate(input_types):
            if not isinstance(type_, TensorType | BufferType):
                raise misused("an input type is a TensorType", f"input_types[{number}]", "a TensorType", type_)
        staged = self.map_parameters(_weight)
        structure: list[Any] = []

        def forward(*values: Any) -> Any:
            result = staged(*values)  # type: ignore[call-arg]
            structure.append(type(result))
            return list(result) if isinstance(result, list | tuple) else [result]

        graph = Graph(type(self).__name__, forward=forward, input_types=list(input_types))
        devices = {ref.to_device() for ref in (type_.device for type_ in input_types)} or {CPU()}
        given = _registry(self)
        if weights is not None:
            given = {name: tensor_of(value)[0].driver_tensor for name, value in weights.items()}
        model = InferenceSession(devices=list(devices)).load(graph, weights_registry=given)
        return CompiledModule(model, structure[0])

    def __repr__(self) -> str:
        lines = [f"{name}: {value.dtype} {list(value.shape)}" for name, value in self.local_parameters]
        lines += [f"{name}: " + repr(child).replace("\n", "\n  ") for name, child in self.children]
        return type(self).__name__ + ("(\n  " + "\n  ".join(lines) + "\n)" if lines else "()")


class CompiledModule(Generic[R]):
    """A compiled module.

    Attributes:
        model: the model that runs it.
    """

    def __init__(self, model: Model, structure: type) -> None:
        self.model = model
        self._structure = structure

    @placed
    def __call__(self, *args: Any) -> R:
        results = [Tensor(storage=result) for result in self.model(*map(_memory, args))]
        if issubclass(self._structure, tuple) and hasattr(self._structure, "_make"):
            return self._structure._make(results)  # type: ignore[no-any-return]
        if issubclass(self._structure, list | tuple):
            return self._structure(results)  # type: ignore[return-value]
        return results[0]  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"CompiledModule({self.model!r})"


def _memory(value: object) -> Any:
    return value.driver_tensor if isinstance(value, Tensor) else value


def _weight(name: str, parameter: Parameter) -> Weight:
    return Weight(name, parameter.dtype, [int(dim) for dim in parameter.shape], parameter.device)


def _registry(module: Module[..., Any]) -> dict[str, Buffer]:
    results = {}
    for name, parameter in module.parameters:
        if not isinstance(parameter, Tensor):
            raise misused(f"parameter '{name}' is a weight without elements", "weights", "arrays by name", "None")
        results[name] = parameter.driver_tensor
    return results


def _checked(name: str, value: object) -> Any:
    if not isinstance(value, Tensor | TensorValue):
        raise misused(f"parameter '{name}' becomes {type(value).__name__}", "f", "a Tensor", type(value).__name__)
    return value


@overload
@dataclass_transform()
def module_dataclass(cls: C, /, *, repr: bool = ..., **kwargs: object) -> C: ...
@overload
@dataclass_transform()
def module_dataclass(cls: None = ..., /, *, repr: bool = ..., **kwargs: object) -> Callable[[C], C]: ...
def module_dataclass(cls: Any = None, /, *, repr: bool = False, **kwargs: Any) -> Any:
    """Makes a class a dataclass and a module: its fields are parameters, children and settings.

    Args:
        cls: the class; a decorator is returned without it.
        repr: whether dataclasses define `__repr__`; else it shows parameters and children.
        kwargs: as of `dataclasses.dataclass`.
    """

    def made(cls: type) -> type:
        base = cls if issubclass(cls, Module) else type(cls.__name__, (cls, Module), {"__module__": cls.__module__})
        return dataclasses.dataclass(repr=repr, **{"eq": False, **kwargs})(base)

    return made if cls is None else made(cls)
