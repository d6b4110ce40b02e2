"""What all tests share: `support` becomes importable, and kernels can be run without a graph.

`run_kernel(file, op, inputs)`, `compile_kernel(file, op, types, target=...)` and `entry_of(file, op, types)` are the
functions of `support.harness`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A machine with GPUs is tested as one without: what needs a GPU is run by gpu/hardware.py, which says so here.
if "TESTS_ON_HARDWARE" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["HIP_VISIBLE_DEVICES"] = "-1"

# Workers of pytest share the machine: threads of matrix products in NumPy and PyTorch would spin while they wait, and
# to start them takes half the time that NumPy does in each process.
for _threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

os.environ.setdefault("EINKORN_COLLECTIVE_TIMEOUT", "60")  # a rank that waits for ever costs a minute, not five

# No test depends on the speed of the machine.
settings.register_profile("einkorn", deadline=None)
settings.load_profile("einkorn")

# A user's own trust policy changes no result: this one requires nothing.
os.environ["EINKORN_TRUST"] = str(Path(__file__).resolve().parent / "support" / "trust.toml")

_HERE = str(Path(__file__).resolve().parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from long_tests import is_long  # noqa: E402
from support import amd_checkout  # noqa: E402

amd_checkout.rename()


# In these folders compiled code is a means: it is made sooner, which runs longer. What kernels compute is tested as it
# ships, here by files and tests that are marked so. EINKORN_OPTIMIZE=3 make test: everything as it ships.
QUICK = {"cli", "diagnostics", "docs", "dsl", "eager", "examples", "gpu", "graph", "interop"}
QUICK |= {"interpreter", "packaging", "testing"}
LEVEL = "EINKORN_OPTIMIZE"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Says for each test, and the processes it starts, how much LLVM makes of code for this machine."""
    said = os.environ.get(LEVEL)
    if said is None and item.path.relative_to(_HERE).parts[0] in QUICK and not item.get_closest_marker("as_shipped"):
        os.environ[LEVEL] = "0"
    try:
        return (yield)
    finally:
        os.environ.pop(LEVEL, None)
        os.environ.update({} if said is None else {LEVEL: said})


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests that `make test` leaves out."""
    if is_long(item.nodeid):
        item.add_marker("long")


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from what stays to the end, and lets it look less often: compilers make much."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 20)


@pytest.fixture(scope="module", autouse=True)
def _forgotten_code() -> Iterator[None]:
    """Forgets the code that a file's tests compiled; what stays of a file, the collector need not look at again."""
    yield
    if "support.harness" in sys.modules:
        sys.modules["support.harness"].forget()
    gc.collect()  # of this file's objects alone: those before are frozen
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--callers", default="", help="by whom check_op calls ops, too: direct,torch,jax,exported")


def pytest_configure(config: pytest.Config) -> None:
    """Makes these the callers of every `check_op` that names none."""
    names = [name for name in config.getoption("--callers").split(",") if name]
    if "exported" in names:
        from support.exported import results_by_export

        from einkorn.graph.interop import checked

        checked.CALLERS = {**checked.CALLERS, "exported": results_by_export}
    if names:
        from einkorn import testing
        from einkorn.graph.interop import checked
        from einkorn.testing import check_op

        testing.CALLERS = checked.CALLERS
        check_op.__kwdefaults__["callers"] = names


@pytest.fixture(scope="session")
def run_kernel() -> Callable[..., list[Any]]:
    """Runs one op of a kernel file on arrays; gives the list of its outputs."""
    from support import harness

    return harness.run_kernel


@pytest.fixture(scope="session")
def compile_kernel() -> Callable[..., Any]:
    """Compiles one op of a kernel file for a target; gives the artifact and the types of its outputs."""
    from support import harness

    return harness.compile_kernel


@pytest.fixture(scope="session")
def entry_of() -> Callable[..., Any]:
    """The compile unit of one op of a kernel file, and the types of its outputs."""
    from support import harness

    return harness.entry_of
