"""What is checked of devices that are GPUs: on hardware by `make test-gpu`, and in the children of `test_libraries.py`
by libraries that stand for a driver's."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from einkorn.graph import Accelerator, accelerator_count


@pytest.fixture
def gpu() -> Accelerator:
    assert accelerator_count() > 0, "there is no GPU"
    return Accelerator(0)


@pytest.fixture
def fake(request: pytest.FixtureRequest) -> Any:
    """The library that stands for the driver's; what looks at its calls stands in files that hardware does not run."""
    return request.config.fake_gpu  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A check with a `case` runs all `CASES` of its file on hardware, and `SAMPLE_CASES` in the interpreter."""
    if "case" in metafunc.fixturenames:
        fake = hasattr(metafunc.config, "fake_gpu")
        metafunc.parametrize("case", metafunc.module.SAMPLE_CASES if fake else metafunc.module.CASES, ids=str)


@pytest.fixture(autouse=True)
def sound(request: pytest.FixtureRequest, gpu: Accelerator) -> Iterator[None]:
    """A test leaves no memory behind, and nothing that a real library would not bear."""
    fake = getattr(request.config, "fake_gpu", None)
    before = gpu.driver.properties()["pool_in_use"]
    if fake is not None:
        fake.log.clear()
    yield
    if fake is not None and fake.fault:
        return  # the context is lost
    assert fake is None or fake.violations == []
    gpu.synchronize()
    if gpu.driver.properties()["pool_in_use"] > before:
        gc.collect()
    assert gpu.driver.properties()["pool_in_use"] <= before
    assert fake is None or fake.violations == []
