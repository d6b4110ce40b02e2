"""Writes and reads files that other processes see: replaced whole, and read only where they are the user's own."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

# How files are opened that others might have put there: opening a pipe would wait, reading a device might never end.
PLAIN_ONLY: Final = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file next to `path`, with the mode that the user's umask says, which takes its place when the block has ended.

    Raises:
        OSError: it cannot be written; nothing is left of it. `filename` is that of `path`.
    """
    if not path.name or "\0" in str(path):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # os.open and not mkstemp, which would make it for its owner alone.
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        error.filename = str(path)  # the name that the user has given
        raise
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def replace_file(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file; see `replacing`."""
    with replacing(path) as stream:
        stream.writelines(chunks)


def open_own(path: str | Path, *, folder: int | None = None) -> BinaryIO:
    """Opens a regular file of this user's own for reading: never a link, a pipe or a device, which might not end.

    Args:
        folder: the descriptor of the folder that the path begins at.

    Raises:
        OSError: it is not a file, or cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | PLAIN_ONLY, dir_fd=folder)
    try:
        status = os.fstat(handle)
        if not (stat.S_ISREG(status.st_mode) and is_own(status)):
            raise PermissionError(errno.EPERM, "it is not a regular file of this user's", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def is_own(status: os.stat_result) -> bool:
    """Whether something belongs to this user; always where a system has no such owners."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


class OwnFolder:
    """A folder that this user alone can look into (mode 0700), which is made if it is missing, and its regular files.

    It is opened once: what others put in its place meanwhile is not seen.

    Raises:
        OSError: it cannot be made, is a link, belongs to another user, or others have access.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | PLAIN_ONLY)
        status = os.fstat(self._handle)
        if not is_own(status) or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            self.close()
            raise PermissionError(errno.EPERM, "it is not this user's alone", str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the folder."""
        os.close(self._handle)

    def names(self) -> list[str]:
        """The names of all that lies there, in order."""
        return sorted(os.listdir(self._handle))

    def create(self, name: str) -> BinaryIO:
        """A new file, open for writing.

        Raises:
            OSError: there is one of this name.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN_ONLY
        return os.fdopen(os.open(name, flags, 0o600, dir_fd=self._handle), "wb")

    def read(self, name: str, most: int) -> bytes:
        """The contents of a file of at most so many bytes.

        Raises:
            OSError: it is larger, or no regular file of this user's.
        """
        with open_own(name, folder=self._handle) as stream:
            data = stream.read(most + 1)
        if len(data) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
        return data

    def rename(self, name: str, to: str) -> None:
        """Gives a file another name; one that has it is replaced."""
        os.replace(name, to, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._handle)
