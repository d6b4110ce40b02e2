"""Importing kernel files: from their text as it is now, and apart from the program's own modules.

A kernel file may import its neighbours, or the modules of the package that it lies in. Python's own machinery would
give it what the program imported before under the same name, or bytecode of an older text; here each library gets
modules of its own, made from source, and made again when any of their texts has changed.

Input: a path. Output: the module. Non-goals: modules that lie elsewhere are imported as always.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import CompileError, EinkornError, joined
from .source import Place, instruction_place

SOURCE = "__einkorn_source__"  # where a module keeps the text that it was made from
BROKEN = "__einkorn_broken__"  # where it keeps the names that it would have, but for mistakes that have been noted


@dataclass(frozen=True)
class _Loaded:
    """A module, and the digests of all texts that were read to make it."""

    module: ModuleType
    texts: dict[str, str]


_loaded: dict[str, _Loaded] = {}
_lock = threading.RLock()
_collected: list[list[CompileError]] = []  # of the files that are being imported; only under the lock


def import_file(file: Path) -> ModuleType:
    """The module of a kernel file; the same one as long as no text that it was made from changes.

    Raises:
        CompileError: the file is not valid Python, or importing it fails.
    """
    with _lock:
        known = _loaded.get(str(file))
        if known is not None and all(_digest_of(path) == digest for path, digest in known.texts.items()):
            return known.module
        root, name = _dotted_name(file)
        finder = _TextFinder(root, {name: file})
        mistakes: list[CompileError] = []
        _collected.append(mistakes)
        try:
            with _apart(finder), _located(file):
                module = importlib.import_module(name)
        except CompileError as error:
            if not (mistakes and error.code == "EK0110"):  # what fails after a mistake may fail because of it
                mistakes.append(error)
        finally:
            _collected.pop()
        if mistakes:
            raise joined(mistakes)
        _loaded[str(file)] = _Loaded(module, finder.texts)
        return module


def collect(mistake: CompileError) -> bool:
    """Notes a mistake of a file that is being imported, to be raised with all others of it; False when none is."""
    if _collected:
        _collected[-1].append(mistake)
    return bool(_collected)


def _digest_of(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _dotted_name(file: Path) -> tuple[Path, str]:
    """The folder that the file's package (or the file) lies in, and the module's name there."""
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        parts.append(folder.name)
        folder = folder.parent
    if len(parts) == 1 and (file.stem in sys.stdlib_module_names or not file.stem.isidentifier()):
        return folder, f"_einkorn_kernels_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    return folder, ".".join(reversed(parts))


class _TextLoader(SourceFileLoader):
    """Makes a module from its text alone: bytecode may be older than it claims to be."""

    def __init__(self, name: str, path: str, texts: dict[str, str]) -> None:
        super().__init__(name, path)
        self.texts = texts

    def path_stats(self, path: Any) -> Any:
        raise OSError("no bytecode")  # the loader's own way to go without

    def get_data(self, path: Any) -> bytes:
        data = super().get_data(path)
        self.texts[str(path)] = hashlib.sha256(data).hexdigest()
        return data

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[SOURCE] = importlib.util.decode_source(self.get_data(self.path))
        super().exec_module(module)


class _TextFinder(MetaPathFinder):
    """Finds modules below one folder; `files` names modules that lie in a certain file."""

    def __init__(self, root: Path, files: dict[str, Path]) -> None:
        self.root = root
        self.files = files
        # A package has its neighbours for itself; beside installed packages nothing belongs to the kernels.
        self.alone = any("." in name for name in files) or root.name in ("site-packages", "dist-packages")
        self.texts: dict[str, str] = {}

    def provides(self, name: str) -> bool:
        """Whether a name belongs to the folder rather than to the program."""
        top = name.partition(".")[0]
        if top in {own.partition(".")[0] for own in self.files}:
            return True
        if self.alone or top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
            return False
        return (self.root / f"{top}.py").is_file() or (self.root / top / "__init__.py").is_file()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self.provides(fullname):
            return None
        if fullname in self.files:
            return self._spec(fullname, self.files[fullname])
        tail = fullname.rpartition(".")[2]
        for folder in [self.root] if path is None else map(Path, path):
            if (folder / tail / "__init__.py").is_file():
                return self._spec(fullname, folder / tail / "__init__.py", [str(folder / tail)])
            if (folder / f"{tail}.py").is_file():
                return self._spec(fullname, folder / f"{tail}.py")
        return None

    def _spec(self, name: str, file: Path, below: list[str] | None = None) -> ModuleSpec | None:
        loader = _TextLoader(name, str(file), self.texts)
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=below)


@contextmanager
def _apart(finder: _TextFinder) -> Iterator[None]:
    """While it lasts, the folder's names are the folder's modules; afterwards the program's are back."""
    hidden = {name: module for name, module in sys.modules.items() if finder.provides(name)}
    for name in hidden:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.provides(name)]:
            del sys.modules[name]
        sys.modules.update(hidden)


@contextmanager
def _located(file: Path) -> Iterator[None]:
    """Turns what importing a kernel file raises into an error at its place."""
    try:
        yield
    except EinkornError as error:
        if error.place is None:
            error.place = _place_of(error, file)
        raise
    except RecursionError as error:
        raise CompileError("this file is nested too deeply", code="EK0112", place=_place_of(error, file)) from None
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        end_line, end_column = error.end_lineno or line, error.end_offset or column + 1
        raise CompileError(
            f"this is not valid Python: {error.msg}",
            code="EK0100",
            place=Place(error.filename or str(file), line, column, end_line, max(end_column, column + 1)),
        ) from None
    except (Exception, SystemExit) as error:
        raise CompileError(
            f"importing this kernel file failed: {type(error).__name__}: {error}",
            code="EK0110",
            place=_place_of(error, file),
        ) from error


def _place_of(error: BaseException, file: Path) -> Place:
    """The deepest frame of the traceback that lies in the file."""
    place = Place(str(file), 1)
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == str(file):
            place = instruction_place(code, traceback.tb_lasti, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place
