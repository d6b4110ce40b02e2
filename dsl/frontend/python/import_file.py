"""Imports kernel files: from their text as it is now, and apart from the program's own modules.

A kernel file may import its neighbours, or the modules of the package that it lies in. Python's own machinery would
give it what the program imported before under the same name, or bytecode of an older text; here each library gets
modules of its own, made from source, and made again when any of their texts has changed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from ...diagnostics.collecting import collect, collecting
from ...diagnostics.dataclass import dataclass
from ...diagnostics.errors import EinkornError, joined
from ...diagnostics.forks import fork_lock, in_child
from ...diagnostics.installation import PACKAGE
from ...diagnostics.shield import Interruption, passes_signals, shielded, window
from ...diagnostics.text import keep_text
from .recovery import as_mistake, recover
from .register import KERNEL_FILE


@dataclass(frozen=True)
class _Loaded:
    """A module, and the digests of all texts that were read to make it."""

    module: ModuleType
    texts: dict[str, str]


_loaded: dict[str, _Loaded] = {}
LOCK = fork_lock()  # mistakes are collected for one text at a time
_apart_now: list[tuple[int, object, Callable[[], None]]] = []  # imports: thread, its `sys.stdout`, what ends it
_prints: list[TextIO] = []  # where the prints of files go that are being imported


@passes_signals
def import_file(file: Path, collected: list[EinkornError] | None = None) -> ModuleType | None:
    """The module of a kernel file; the same one as long as no text that it was made from changes.

    A file that is being run, as the program itself or by an import that is under way, is its own module as far as it
    has come: to run it again within itself would have no end.

    With `collected`, mistakes are added there, and the module has what could be read; None when that is nothing.

    Raises:
        CompileError: without `collected`: the file is not valid Python, or importing it fails.
    """
    with LOCK:
        running = _running(file)
        if running is not None:
            return running
        known = _loaded.get(str(file))
        if known is not None and all(_digest_of(path) == digest for path, digest in known.texts.items()):
            return known.module
        root, name = _dotted_name(file)
        finder = _TextFinder(root, {name: file})
        mistakes: list[EinkornError] = []
        module: ModuleType | None = None
        with shielded(), collecting(mistakes):
            try:
                with _apart(finder), redirect_stdout(_prints[-1] if _prints else sys.stdout), window():
                    module = importlib.import_module(name)
            except (KeyboardInterrupt, Interruption):
                raise
            except BaseException as error:
                mistakes.append(as_mistake(error, str(file)))
        if not mistakes and module is not None:
            _loaded[str(file)] = _Loaded(module, finder.texts)
        elif collected is None:
            raise joined(mistakes)
        else:
            collected += mistakes
        return module


@contextmanager
def printing_to(stream: TextIO) -> Iterator[None]:
    """While it lasts, what kernel files print when they are imported goes to this stream."""
    _prints.append(stream)
    try:
        yield
    finally:
        _prints.pop()


def _digest_of(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _running(file: Path) -> ModuleType | None:
    """The module that a file is: of the program, or of an import that this very call comes from."""
    modules = [sys.modules.get("__main__")]
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            modules.append(sys.modules.get(frame.f_globals.get("__name__", "")))
        frame = frame.f_back  # type: ignore[assignment]
    for module in modules:
        origin = getattr(module, "__file__", None)
        if isinstance(origin, str) and os.path.basename(origin) == file.name and os.path.realpath(origin) == str(file):
            return module
    return None


def import_root(folder: Path) -> Path:
    """The folder in which absolute imports of the files in `folder` find their neighbours."""
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


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

    def __init__(self, name: str, path: str, texts: dict[str, str], kernels: bool) -> None:
        super().__init__(name, path)
        self.texts = texts
        self.kernels = kernels  # whether it is the kernel file itself, of which all mistakes are wanted

    def path_stats(self, path: object) -> Any:
        raise OSError("no bytecode")  # the loader's own way to go without

    def get_data(self, path: Any) -> bytes:
        data = super().get_data(path)
        self.texts[str(path)] = hashlib.sha256(data).hexdigest()
        return data

    def exec_module(self, module: ModuleType) -> None:
        text = importlib.util.decode_source(self.get_data(self.path))
        keep_text(module.__dict__, self.path, text)
        if self.kernels:
            module.__dict__[KERNEL_FILE] = True
        try:
            super().exec_module(module)
        except BaseException as error:
            if not self.kernels or isinstance(error, KeyboardInterrupt | Interruption):
                raise
            recover(module.__dict__, self.path, text, error, collect)


class _TextFinder(MetaPathFinder):
    """Finds modules below one folder; `files` names modules that lie in a certain file."""

    def __init__(self, root: Path, files: dict[str, Path]) -> None:
        self.root = root
        self.files = files
        self.own = {name.partition(".")[0] for name in files}
        # A package has its neighbours for itself; next to installed packages nothing belongs to the kernels.
        self.alone = any("." in name for name in files) or root.name in ("site-packages", "dist-packages")
        self.texts: dict[str, str] = {}

    def provides(self, name: str) -> bool:
        """Whether a name belongs to the folder rather than to the program."""
        top = name.partition(".")[0]
        if top in self.own:
            return True
        if self.alone or top in sys.stdlib_module_names or top == PACKAGE:
            return False
        below = os.path.join(self.root, top)  # requested all modules of a process: a path object takes longer
        return os.path.isfile(f"{below}.py") or os.path.isfile(os.path.join(below, "__init__.py"))

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
        loader = _TextLoader(name, str(file), self.texts, name in self.files)
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=below)


@contextmanager
def _apart(finder: _TextFinder) -> Iterator[None]:
    """While it lasts, the folder's names are the folder's modules; afterwards the program's are back."""
    hidden = {name: sys.modules[name] for name in _modules_of(finder)}

    def end() -> None:
        sys.meta_path.remove(finder)
        for name in _modules_of(finder):
            del sys.modules[name]
        sys.modules.update(hidden)

    for name in hidden:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    _apart_now.append((threading.get_ident(), sys.stdout, end))
    try:
        yield
    finally:
        _apart_now.pop()
        end()


@in_child
def _forget_imports() -> None:
    """In the child of a fork: imports of other threads are over."""
    while _apart_now and _apart_now[-1][0] != threading.get_ident():
        _, sys.stdout, end = _apart_now.pop()
        end()


def _modules_of(finder: _TextFinder) -> list[str]:
    """The modules of the folder that are loaded; the file system is searched once for each name of the top level."""
    provided = {top for top in {name.partition(".")[0] for name in list(sys.modules)} if finder.provides(top)}
    return [name for name in list(sys.modules) if name.partition(".")[0] in provided] if provided else []
