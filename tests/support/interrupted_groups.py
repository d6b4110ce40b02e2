"""A program whose groups are compiled by threads: Ctrl-C ends their work, and the next load goes on from what is done.

It interrupts itself, once, when the first thread begins to make an object, and says `right` when all is as it should
be. In a process of its own nothing else can swallow the exception, such as a callback of the garbage collector.

Run as a program: python interrupted_groups.py, with `EINKORN_CACHE_DIR` a folder that is new.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import graphs

from einkorn.compiler import groups
from einkorn.compiler.pipeline import GroupCompilation
from einkorn.graph import ops

MAKE = GroupCompilation.make
MAIN = threading.main_thread().ident or 0
_once = threading.Lock()


def interrupted(self: GroupCompilation) -> bytes:
    if _once.acquire(blocking=False):  # a second one would come when nothing expects it
        signal.pthread_kill(MAIN, signal.SIGINT)
    return MAKE(self)


def load() -> Any:
    return graphs.load(lambda x: ops.softmax(ops.softmax(x @ x) @ x) @ x, (np.float32, ["n", "n"]))


def main() -> None:
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started this may ignore it
    groups._processors = lambda: 2
    GroupCompilation.make = interrupted  # type: ignore[method-assign]
    try:
        load()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the load was not interrupted")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("einkorn-compile")]
    assert not list(Path(os.environ["EINKORN_CACHE_DIR"]).rglob("einkorn-compiles-*"))
    GroupCompilation.make = MAKE  # type: ignore[method-assign]
    x = np.eye(2, dtype=np.float32)
    assert np.isfinite(np.asarray(load()(x))).all()
    print("right")


if __name__ == "__main__":
    main()
