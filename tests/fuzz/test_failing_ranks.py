"""A rank of four fails, once in each way; `failing_ranks` has a campaign of many."""

from __future__ import annotations

import subprocess
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import failing_ranks

pytestmark = [
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at the processes of the machine as Linux shows them"),
]


@pytest.mark.parametrize(("how", "launcher"), failing_ranks.CASES)
def test_all_ranks_end_with_the_message_of_the_first_that_fails(how: str, launcher: str) -> None:
    rank = failing_ranks.CASES.index((how, launcher)) % failing_ranks.RANKS
    assert failing_ranks.one(how, launcher, rank, 0.1).faults == ()


def test_what_is_left_would_be_seen(tmp_path: Path) -> None:
    mark, file = uuid.uuid4().hex, tmp_path / "shared"
    file.touch()
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env={failing_ranks.MARK: mark}, stdin=subprocess.PIPE) as process:
        wanted = [f"process {process.pid} runs on", f"{file} is left"]
        while read(process.pid) == b"":
            pass
        assert failing_ranks.left(mark, {str(file)}, 0.0) == wanted
        process.kill()
    file.unlink()
    assert failing_ranks.left(mark, {str(file)}) == []


def read(pid: int) -> bytes:
    return failing_ranks.read(f"/proc/{pid}/environ")
