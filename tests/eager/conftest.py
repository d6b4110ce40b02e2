"""One cache for all tests of tensors: an op is compiled once, whichever file requests it first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import graphs

from einkorn.graph.loading.background import BACKGROUND


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield
        BACKGROUND.wait()
