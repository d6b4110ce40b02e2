"""Replaces files whole: whoever opens one sees the old contents or all of the new ones.

Input: a path and bytes. Output: the file. Non-goals: no folders are made, and what failed is told by the caller.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file beside `path`, with the mode that the user's umask says, and puts it in its place.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    if not path.name or "\0" in str(path):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # os.open and not mkstemp, which would make it for its owner alone.
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(chunks)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
