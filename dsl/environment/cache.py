"""Stores compiled code, keyed by content and shared by all processes of a user.

Each entry is one file, `<root>/v1/<first two letters of the key>/<key><suffix>`: the data and, after it, a trailer of
48 bytes, the seal, that holds the SHA-256 of the entry's name (key and suffix) and data. ELF and PTX loaders read only
what their headers name, so a `.so` is mapped straight from the cache file although a trailer follows. One file and one
rename: a reader in another process sees all of an entry or nothing of it. What lies under an entry's name and is not
that entry (cut short, changed, the copy of another one, no file at all) is a miss, never an error, and is replaced.

The store holds native code, so it is believed only where no other user could have put that code: the folder must be the
user's own and writable by the user alone. Where the folder cannot be trusted or written, a warning says so once, and
the work goes on in a folder of this process that is removed at exit.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import PackageError
from ..diagnostics.shield import shielded
from .files import is_own, open_own
from .knobs import knobs

DEFAULT_LIMIT = 1 << 30

_VERSION = "v1"
_MAGIC = b"EKCACHE2"
_TRAILER = struct.Struct("<32sQ8s")  # SHA-256 of name and data; length of the data; magic
_KEY = re.compile(r"[A-Za-z0-9_]{2,200}")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,12}")
_TEMPORARY = "tmp-"
_TEMPORARY_LIFE = 3600.0  # seconds after which a temporary file's writer is taken to be dead
_PRUNING_SHARD = "00"  # keys are hashes: one put in 256, over all processes, also prunes,
_PRUNING_PART = 50  # but a cache object spends no more than this part of its time with that
_IN_THE_WAY = (IsADirectoryError, NotADirectoryError, FileExistsError)
_warned: set[str] = set()
_own: tuple[str, int] | None = None  # the folder of this process, and its process id


class CacheWarning(UserWarning):
    """The cache folder cannot be used; everything works, but is compiled again in each process."""


@dataclass(frozen=True)
class CacheInfo:
    """What `Cache.info` gives: the folder, how many entries it holds, their bytes, and the limit in bytes."""

    path: Path
    entries: int
    bytes: int
    limit: int


MIN_HASHED_TEXT = 4096  # characters of a text that is read once: the fingerprint is a part of nearly every key


@functools.lru_cache(16)
def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def content_key(*parts: bytes | str | int | float | bool | list[Any] | tuple[Any, ...] | dict[str, Any] | None) -> str:
    """64 hexadecimal digits that stand for `parts`: bytes, or anything that JSON can say.

    Parts are distinguished by their type and their borders (`"a", "b"` is not `"ab"`, and 1 is neither 1.0 nor True);
    the order in which a dict was filled does not matter.
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, bytes):
            kind, data = b"b", part
        elif isinstance(part, str) and len(part) > MIN_HASHED_TEXT:
            kind, data = b"l", _digest(part)
        else:
            kind, data = b"j", json.dumps(part, sort_keys=True, separators=(",", ":")).encode()
        digest.update(struct.pack("<cQ", kind, len(data)))
        digest.update(data)
    return digest.hexdigest()


def shared_cache() -> Cache:
    """The cache that the settings name now."""
    return _cache_at(knobs.cache_dir, knobs.cache)


@functools.cache
def _cache_at(root: Path | None, enabled: bool) -> Cache:
    # A cache that is switched off is a fresh one: it sees the switch itself.
    return Cache(root)


def default_root() -> Path:
    """`EINKORN_CACHE_DIR`, or the folder for caches that the user's system names."""
    if knobs.cache_dir is not None:
        return knobs.cache_dir
    with shielded():
        import platformdirs  # only here: most processes that name a folder never need it

    return Path(platformdirs.user_cache_dir("einkorn", appauthor=False))


class Cache:
    """The store. Safe to use from many threads and processes at once; no call raises for the folder's sake.

    `suffix` is part of an entry's name: what was put with one is found with the same one.

    Args:
        root: the folder; by default `default_root()`. It need not exist.
        limit: bytes above which the entries that were not used for longest are removed.

    With `EINKORN_CACHE=0` nothing is looked up or kept, and `put` writes to the private folder of this process.
    """

    def __init__(self, root: Path | None = None, *, limit: int = DEFAULT_LIMIT) -> None:
        self.root = Path(os.path.abspath(root if root is not None else default_root()))
        self.limit = limit
        self.enabled = knobs.cache
        self._private: tuple[Path, int] | None = None
        self._next_pruning = 0.0
        with shielded():
            trouble = _distrust(self.root) if self.enabled else None
        if trouble:
            _warn_once(self.root, trouble)
        self._readable = self._writable = self.enabled and trouble is None

    def get(self, key: str, suffix: str = ".so") -> bytes | None:
        """The data that was put under `key` with `suffix`, or None."""
        entry = self._find(key, suffix)
        return entry[1] if entry else None

    def path(self, key: str, suffix: str = ".so") -> Path | None:
        """A file to map, checked just now, that starts with the data that was put; or None."""
        entry = self._find(key, suffix)
        return entry[0] if entry else None

    def put(self, key: str, data: bytes, suffix: str = ".so", *, private: bool = False) -> Path:
        """Stores `data` and gives the path of a file that starts with it; with `private`, for this process only.

        Raises:
            PackageError: not even a temporary folder can be written.
        """
        with shielded():
            return self._put(key, data, suffix, private)

    def _put(self, key: str, data: bytes, suffix: str, private: bool) -> Path:
        if self._writable and not private:
            file = self._file(self.root, key, suffix)
            try:
                written = _write(file, data)
                if key.startswith(_PRUNING_SHARD) and time.monotonic() >= self._next_pruning:
                    self._prune()
                return written
            except _IN_THE_WAY as error:  # a folder where the entry should be, or a file where its folder should be
                _warn_once(file, f"something else is in its place ({error.strerror or error})")
            except OSError as error:  # read-only or full; what it already holds still serves
                _warn_once(self.root, f"it cannot be written ({error.strerror or error})")
                self._writable = False
        try:
            return _write(self._file(self._private_root(), key, suffix), data)
        except OSError as error:
            raise PackageError(
                f"compiled code cannot be kept anywhere: {error.strerror or error}",
                code="EK0517",
                hint="make room in the folder for temporary files, or let EINKORN_CACHE_DIR name another folder",
            ) from None

    def info(self) -> CacheInfo:
        """What is on disk now."""
        with shielded():
            sizes = [status.st_size for _, status in _entries(self.root)]
        return CacheInfo(self.root, len(sizes), sum(sizes), self.limit)

    def clear(self) -> int:
        """Removes all entries and says how many. Files that are not entries of a cache are left alone."""
        if _distrust(self.root):
            return 0
        count = 0
        for file, _ in list(_entries(self.root, temporary=True)):
            with contextlib.suppress(OSError):
                file.unlink()
                count += not file.name.startswith(_TEMPORARY)
        return count

    def _file(self, root: Path, key: str, suffix: str) -> Path:
        if not _KEY.fullmatch(key) or not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"{key + suffix!r} cannot name a cache entry")
        return root / _VERSION / key[:2] / (key + suffix)

    def _find(self, key: str, suffix: str) -> tuple[Path, bytes] | None:
        with shielded():  # a handler may raise an OSError, too
            return self._found(key, suffix)

    def _found(self, key: str, suffix: str) -> tuple[Path, bytes] | None:
        own = self.enabled and self._private is not None and self._private[1] == os.getpid()
        roots = [self._private[0]] if own and self._private else []
        roots += [self.root] if self._readable else []
        for root in roots:
            file = self._file(root, key, suffix)
            data = _read(file)
            if data is not None:
                return file, data
        return None

    def _private_root(self) -> Path:
        # A forked child makes its own: the parent may remove the old one while the child still maps files from it.
        if self._private is None or self._private[1] != os.getpid() or not self._private[0].is_dir():
            self._private = (Path(tempfile.mkdtemp(dir=_process_folder())), os.getpid())
        return self._private[0]

    def _prune(self) -> None:
        """Removes what dead writers left, and the oldest entries until the rest is three quarters of the limit."""
        begun = time.monotonic()
        try:
            self._remove_oldest()
        finally:
            ended = time.monotonic()
            self._next_pruning = ended + (ended - begun) * _PRUNING_PART

    def _remove_oldest(self) -> None:
        now = time.time()
        kept = []
        for file, status in _entries(self.root, temporary=True):
            if not file.name.startswith(_TEMPORARY):
                kept.append((status.st_mtime, status.st_size, file))
            elif now - status.st_mtime > _TEMPORARY_LIFE:
                with contextlib.suppress(OSError):
                    file.unlink()
        total = sum(size for _, size, _ in kept)
        if total <= self.limit:
            return
        for _, size, file in sorted(kept):
            with contextlib.suppress(OSError):
                file.unlink()
                total -= size
            if total <= self.limit * 3 // 4:
                break


def _process_folder() -> str:
    """A folder with mode 0700 that is removed when this process ends; not before, since code is mapped from it."""
    global _own
    if _own is None or _own[1] != os.getpid() or not os.path.isdir(_own[0]):
        _own = (tempfile.mkdtemp(prefix="einkorn-"), os.getpid())
        atexit.register(_remove_own, *_own)
    return _own[0]


def _remove_own(path: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child that exits must not remove its parent's folder
        shutil.rmtree(path, ignore_errors=True)


def _distrust(root: Path) -> str | None:
    """Why code from `root` may not be run, or None. Makes the folder, for the user alone, when it is missing."""
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        status = os.stat(root)
        if not hasattr(os, "geteuid"):  # no such owners and modes here
            return None
        if not is_own(status):
            return "it belongs to another user"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return "other users may write to it (chmod go-w makes it fit)"
        for parent in Path(os.path.realpath(root)).parents:
            mode = os.stat(parent).st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return f"other users may replace it, since they may write to {parent}"
        if os.statvfs(root).f_flag & getattr(os, "ST_NOEXEC", 0):
            return "code cannot be run from there (the file system is mounted noexec)"
    except (OSError, ValueError) as error:  # a ValueError: no path at all
        return f"it cannot be made ({getattr(error, 'strerror', None) or error})"
    return None


def _warn_once(path: Path, reason: str) -> None:
    """Says once that a folder, or one file below it, is not used."""
    if str(path) in _warned:
        return
    _warned.add(str(path))
    what = "file" if _SUFFIX.fullmatch(path.suffix) and _KEY.fullmatch(path.stem) else "folder"
    warnings.warn(
        f"the cache {what} {path} is not used: {reason}; compiled code is kept for this process only "
        "(EINKORN_CACHE_DIR names another folder)",
        CacheWarning,
        stacklevel=4,
    )


def _seal(name: str, data: bytes) -> bytes:
    """The trailer of the entry `name`, which is key and suffix: it fits no other entry, and no other kind of entry."""
    digest = hashlib.sha256(name.encode() + b"\0")
    digest.update(data)
    return _TRAILER.pack(digest.digest(), len(data), _MAGIC)


def _write(file: Path, data: bytes) -> Path:
    for attempt in (1, 2):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=file.parent)
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.write(_seal(file.name, data))
            with contextlib.suppress(OSError):
                os.rmdir(file)  # an empty folder may be in the way; one that holds something is left alone
            os.replace(temporary, file)
            return file
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            # Another process cleared the cache, folders and all, between the two steps: make them again, once.
            if not isinstance(error, FileNotFoundError) or attempt == 2:
                raise
    raise AssertionError("unreachable")


def _read(file: Path) -> bytes | None:
    """The data of an entry that is whole, unchanged and the user's own, else None."""
    try:
        with open_own(file) as stream:
            status = os.fstat(stream.fileno())
            raw = stream.read()
        if time.time() - status.st_mtime > 86400.0:  # marks it as used; once a day is enough for pruning
            with contextlib.suppress(OSError):
                os.utime(file)
    except OSError:
        return None
    data = raw[: -_TRAILER.size]
    return data if len(raw) >= _TRAILER.size and raw[-_TRAILER.size :] == _seal(file.name, data) else None


def _entries(root: Path, temporary: bool = False) -> Iterator[tuple[Path, os.stat_result]]:
    """The files of the store, and nothing else that may lie in the folder."""
    try:
        shards = sorted(item.path for item in os.scandir(root / _VERSION) if item.is_dir(follow_symlinks=False))
    except OSError:
        return
    for shard in shards:
        try:
            items = sorted(os.scandir(shard), key=lambda entry: entry.name)
        except OSError:
            continue
        for item in items:
            name, dot, suffix = item.name.partition(".")
            is_entry = _KEY.fullmatch(name) and _SUFFIX.fullmatch(dot + suffix) and shard.endswith(name[:2])
            with contextlib.suppress(OSError):  # another process may remove it meanwhile
                if (is_entry or (temporary and name.startswith(_TEMPORARY))) and item.is_file(follow_symlinks=False):
                    yield Path(item.path), item.stat(follow_symlinks=False)
