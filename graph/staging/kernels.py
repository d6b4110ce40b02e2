"""Finds the kernels of a graph: the ones that ship with the package, and the user's own.

Libraries are read when the graph is made, so a wrong path is reported there, and a changed file is seen by the next
graph. What a graph needs to know of a shipped kernel is kept in the cache, so that a warm start imports no kernel file.

See also `dsl.package.library` (reading of libraries).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from ...dsl.diagnostics.collecting import Broken
from ...dsl.diagnostics.errors import PackageError, did_you_mean
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import shown_path, user_place
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.fingerprint import fingerprint
from ...dsl.environment.tracebacks import placed
from ...dsl.frontend.caller import Called
from ...dsl.frontend.program import PortableKernel
from ...dsl.package.library import LoadedKernel, library_of, load_library, loaded_kernel
from ...dsl.package.library import LoadedLibrary as Library
from ...dsl.package.namespace import OpNamespace, kernels_in
from ...dsl.signature.schema import OpSchema
from ...dsl.types.dtype import DType
from ..arguments import list_of, text_of, wrong

Extension: TypeAlias = "str | PathLike[str] | Called | KernelLibrary | OpNamespace"
Extensions: TypeAlias = "Extension | Iterable[Extension]"


class Kernels:
    """A `KernelSource` over kernel libraries.

    Raises:
        PackageError: a library cannot be read, or two of them have an op of the same name.
    """

    def __init__(self, libraries: Sequence[Library]) -> None:
        self._libraries = tuple(libraries)
        self._custom: dict[str, LoadedKernel] = {}
        for library in self._libraries:
            for name, kernel in library.kernels.items():
                other = self._custom.setdefault(name, kernel)
                if other.schema.override or kernel.schema.override:
                    self._custom[name] = kernel if kernel.schema.override else other
                elif other.origin != kernel.origin:
                    raise PackageError(
                        f"op {name!r} is in two libraries, {shown_path(other.origin)} and {shown_path(kernel.origin)}",
                        code="EK0443",
                        op=name,
                        got=[other.origin, kernel.origin],
                        hint='give one of them another name, or a namespace: @register("mine::name")',
                    )

    def builtin(self, family: str, name: str) -> LoadedKernel:
        """A kernel of the shipped library file `family`."""
        return shipped_kernel(family, name)

    def chosen(self, family: str, name: str, inputs: Sequence[DType], outputs: Sequence[DType] | None) -> LoadedKernel:
        """The kernel of a built-in op for operands of these dtypes: that of a library which overrides it, where its
        dtypes are among those that it takes, or the one of the shipped library file `family`.

        Raises:
            PackageError: EK0417, the library's kernel takes other arguments or parameters than the built-in one.
        """
        shipped, kernel = self.builtin(family, name), self._custom.get(name)
        if kernel is None or not kernel.schema.override:
            return shipped
        kernel = in_place_of(kernel, shipped)
        return kernel if kernel.schema.takes(inputs, outputs) else shipped

    def find(self, name: str) -> LoadedKernel | None:
        """The custom op of this name, or None. A name without its namespace serves when only one op has it.

        Raises:
            PackageError: several libraries have an op of this bare name.
        """
        kernel = self._custom.get(name)
        if kernel is None and "::" not in name:
            spaced = [full for full in self._custom if full.endswith(f"::{name}")]
            if len(spaced) > 1:
                raise PackageError(
                    f"op {name!r} is in several namespaces: {', '.join(spaced)}",
                    code="EK0443",
                    place=user_place(),
                    op=name,
                    got=spaced,
                    hint="write the name with its namespace",
                )
            kernel = self._custom[spaced[0]] if spaced else None
        return kernel

    def names(self) -> Iterable[str]:
        """The names of all custom ops."""
        return self._custom

    def searched(self) -> Iterable[str]:
        """The paths of the libraries, as the user gave them."""
        return [library.path for library in self._libraries]


def in_place_of(kernel: LoadedKernel, shipped: LoadedKernel) -> LoadedKernel:
    """A kernel that takes the place of a built-in op: it has effects where that has.

    Of variadic arguments and of sizes that a shape function computes there is none that a library could override.

    Raises:
        PackageError: EK0417, it does not take what the built-in op's kernel takes.
    """
    wanted, got = (_taken(each.schema) for each in (shipped, kernel))
    if wanted != got:
        name = shipped.schema.name
        raise PackageError(
            f"op {name!r} of {shown_path(kernel.origin)} overrides the built-in op, and takes ({got}) where that takes"
            f" ({wanted})",
            code="EK0417",
            place=kernel.schema.place or user_place(),
            op=name,
            expected=wanted,
            got=got,
        )
    if shipped.schema.effects and not kernel.schema.effects:
        return dataclasses.replace(kernel, schema=dataclasses.replace(kernel.schema, effects=True))
    return kernel


def _taken(schema: OpSchema) -> str:
    """What calls of a kernel give it: outputs are counted, inputs and parameters are named."""
    inputs = [f"{argument.role.value} {argument.name}" for argument in schema.inputs]
    parameters = [f"{p.kind} {p.name}" for p in schema.parameters]
    parameters += [f"size {name}" for name in schema.late]
    return ", ".join([f"{len(schema.outputs)} output{'s' * (len(schema.outputs) != 1)}", *inputs, *parameters])


class KernelLibrary:
    """Libraries of kernels that several graphs share: each is read once.

    Args:
        paths: folders of kernel files, single files, packages, kernels themselves, or other `KernelLibrary`s.

    Raises:
        PackageError: a path holds no library, or two of them have an op of the same name.
        CompileError: a kernel file is not valid Python, or a signature is wrong.
    """

    def __init__(self, paths: Extensions = ()) -> None:
        self.libraries: list[Library] = []
        self.load_paths(paths)

    def add_path(self, path: Extension) -> None:
        """Adds the library at a path; one that is there already stays as it was read."""
        self.load_paths([path])

    @placed
    def load_paths(self, custom_extensions: Extensions) -> None:
        """Adds the libraries at some paths: all of them, or none when one is wrong."""
        libraries = list(self.libraries)
        for one in extensions_of(custom_extensions):
            if not isinstance(one, Path):
                libraries.append(one)
            elif one not in [Path(library.path) for library in libraries]:
                libraries.append(load_library(one))
        Kernels(libraries)
        self.libraries = libraries

    def library_paths(self) -> list[Path]:
        """The paths of the libraries, in the order in which they were added."""
        return [Path(library.path) for library in self.libraries]

    def verify_custom_op(self, custom_op: str) -> None:
        """
        Raises:
            PackageError: EK0440, no library has an op of this name; EK0443 several have it.
        """
        kernels = Kernels(self.libraries)
        name = text_of("custom_op", custom_op, "the name of an op")
        if kernels.find(name) is None:
            raise PackageError(
                f"there is no op {name!r}",
                code="EK0440",
                place=user_place(),
                argument="custom_op",
                expected=sorted(kernels.names()),
                got=name,
                notes=[f"searched {', '.join(kernels.searched())}"] if self.libraries else [],
                hint=did_you_mean(name, kernels.names()),
            )

    def __repr__(self) -> str:
        return f"KernelLibrary({', '.join(library.path for library in self.libraries)})"


def open_kernels(extensions: Sequence[Path | Library], library: KernelLibrary | Library | None) -> Kernels:
    """The kernels that a graph with these extensions can use.

    Raises:
        PackageError: a path holds no library, or two libraries have an op of the same name.
        CompileError: a kernel file is not valid Python, or a signature is wrong.
    """
    libraries = [library] if isinstance(library, Library) else [] if library is None else library.libraries
    libraries = [*libraries, *(load_library(each) if isinstance(each, Path) else each for each in extensions)]
    _check_overrides(libraries)
    return Kernels(libraries)


def _check_overrides(libraries: Sequence[Library]) -> None:
    """Raises PackageError EK0418 for a kernel that overrides nothing."""
    kernels = [(name, kernel) for library in libraries for name, kernel in library.kernels.items()]
    for name, kernel in kernels:
        if kernel.schema.override and name not in shipped_names() and [each for each, _ in kernels].count(name) < 2:
            near = f"reduce_{name}" if f"reduce_{name}" in shipped_names() else None
            raise PackageError(
                f"op {name!r} has override=True, and there is no op of this name to override",
                code="EK0418",
                place=kernel.schema.place or user_place(),
                op=name,
                got=name,
                hint=f"ops.{name} runs the kernel {near!r}" if near else did_you_mean(name, shipped_names()),
            )


@functools.cache
def shipped_names() -> Mapping[str, str]:
    """The names of the kernels of built-in ops, with the files that they are in. Imports none of these."""
    folder = Path(__file__).resolve().parents[2] / "stdlib" / "kernels"
    files = sorted(folder.glob("*.py"))
    return {name: file.stem for file in files for name in _REGISTERED.findall(file.read_text(encoding="utf-8"))}


_REGISTERED = re.compile(r'^@register\(\s*"(\w+)"', re.MULTILINE)


def extensions_of(extensions: object) -> list[Path | Library]:
    """The paths of kernel libraries, and libraries that are at hand, in their order; one may stand for a list of one.

    A kernel is a library of its own: it is taken as it is at this point.
    """
    if isinstance(extensions, str | PathLike | Called | KernelLibrary | Library | OpNamespace | Broken):
        extensions = [extensions]
    results: list[Path | Library] = []
    for position, given in enumerate(list_of("custom_extensions", extensions, "paths or kernels")):
        if isinstance(given, str | PathLike):
            results.append(Path(given))
        elif isinstance(given, Called):
            loaded = loaded_kernel(given)
            results.append(Library(loaded.origin, {loaded.schema.name: loaded}))
        elif isinstance(given, KernelLibrary):
            results += given.libraries
        elif isinstance(given, Library):
            results.append(given)
        elif isinstance(given, OpNamespace):
            results.append(kernels_in(given))
        elif isinstance(given, Broken) and given.error is not None:
            raise given.error
        else:
            code = getattr(given, "__code__", None)  # of a plain function
            hint = 'put @register("name") over it' if code is not None else None
            wrong(f"custom_extensions[{position}]", given, "a path, a kernel or a KernelLibrary", hint=hint)
    return results


@functools.cache
def shipped_kernel(family: str, name: str) -> LoadedKernel:
    """A kernel of the standard library's file `family`.

    Its signature and digest come from the cache where they are known. Its program is read when code is made.

    Raises:
        PackageError: there is none of that name.
    """
    key = content_key("shipped", family, name, fingerprint())
    known = shared_cache().get(key, ".json")
    if known is None:
        program = _program_of(family, name)
        known = json.dumps([program.schema.to_json(), program.digest]).encode()
        shared_cache().put(key, known, ".json")
    schema, digest = json.loads(known)
    make = functools.partial(_program_of, family, name)
    return LoadedKernel(OpSchema.from_json(schema), family, make, shipped=True, known_digest=digest)


def _program_of(family: str, name: str) -> PortableKernel:
    kernels = kernel_family(family).kernels
    if name not in kernels:
        raise PackageError(f"the standard library has no kernel '{name}' in '{family}'", code="EK0504", got=name)
    return kernels[name].portable


SHIPPED: ExtensionPoint[ModuleType] = ExtensionPoint("stdlib.kernels")


@functools.cache
def kernel_family(family: str) -> Library:
    """The kernels of the standard library's file `family`. A file that is there is a family; nothing lists them."""
    return library_of(SHIPPED.within(family))
