"""A fuzzing campaign: random kernels for a number of minutes, each run four ways in a child process.

    python tests/fuzz/campaign.py --minutes 60 --folder build/fuzz

A program that fails is made small and stored in the folder as a kernel file that a test can run (see
`test_regressions`). The exit status is 1 when something was found.

Input: minutes, a folder, a first seed. Output: progress, finds. Non-goals: what programs look like (see `programs`),
and how one is run (see `check`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import select
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from programs import Program  # noqa: E402
from shrinking import Choices, program_of_choices, random_choices, shrunk  # noqa: E402
from writing.base import FEATURES  # noqa: E402

ROUND = 60  # programs of one seed
FINE = ("same", "fails")
RENEW = 400  # programs after which the child is replaced: it never unloads code
SMALL_ENOUGH = 240.0  # seconds after which a find is no longer made smaller
PATIENCE = 180.0  # seconds that a program may take; the machine may be busy


class Child:
    """A process that checks programs, one after the other; replaced when it dies or does not answer."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.served = 0

    def check(self, program: Program) -> tuple[str, str]:
        """What became of a program; see `check.check`, and "crash" and "timeout"."""
        if self.process is None or self.served >= RENEW:
            self.stop()
            command = [sys.executable, str(HERE / "check.py")]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self.served = 0
        self.served += 1
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(program.to_json()) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            answer = process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, answer = [process.stdout], ""
        if answer:
            status, detail = json.loads(answer)
            return status, detail
        self.stop()
        if not ready:
            return "timeout", f"no answer in {PATIENCE:.0f} s"
        return "crash", f"the process ended with status {process.returncode}"

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Campaign:
    """Rounds of random programs, what was in them, what became of them, and the finds."""

    def __init__(self, folder: Path, show: Any) -> None:
        self.folder = folder
        self.child = Child()
        self.outcomes: Counter[str] = Counter()
        self.features: Counter[str] = Counter()
        self.finds: dict[str, Path] = {}
        self.show = show
        self.deadline = 0.0

    def round(self, number: int) -> None:
        """The programs of one seed; a find is made small and stored."""
        rng = random.Random(number)
        for _ in range(ROUND):
            if time.monotonic() >= self.deadline:
                return
            program, choices = random_choices(rng)
            status, detail = self.child.check(program)
            self.outcomes[status] += 1
            self.features.update(program.features)
            self.show(self)
            if status not in FINE and kind_of(status, detail) not in self.finds:
                self.make_small(choices, kind_of(status, detail))

    def make_small(self, choices: Choices, kind: str) -> None:
        """Stores a smaller program with the same kind of trouble."""
        found: dict[Program, tuple[str, str]] = {}
        end = time.monotonic() + SMALL_ENOUGH

        def fails(program: Program) -> bool:
            if time.monotonic() > end:
                return False
            found[program] = self.child.check(program)
            return kind_of(*found[program]) == kind

        program, _ = program_of_choices(shrunk(choices, fails))
        self.finds[kind] = self.store(program, *(found.get(program) or self.child.check(program)))

    def store(self, program: Program, status: str, detail: str) -> Path:
        """Keeps a program as a kernel file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(program.text.encode()).hexdigest()[:10]
        file = self.folder / f"{status}_{name}.py"
        note = "\n".join(f"# {line}".rstrip() for line in detail.strip().splitlines()[-40:])
        file.write_text(f'"""Found by fuzzing: {status}."""\n\n{note}\n{program.data()}\n{program.text}')
        return file


def kind_of(status: str, detail: str) -> str:
    """What trouble has in common: its last line, or that of an error, without numbers and paths."""
    lines = detail.strip().splitlines() or [""]
    chosen = next((line for line in lines if "error[" in line), lines[-1])
    if status == "differs":
        return f"{status} {' '.join(re.findall(r'EK[0-9]+|-O[0-9]|two threads', detail))}"
    return f"{status}: {re.sub(r'[0-9]+', 'N', chosen.rpartition('error[')[2])}"


def summary(campaign: Campaign) -> str:
    """Outcomes and finds in one line."""
    found = ", ".join(f"{n} {status}" for status, n in sorted(campaign.outcomes.items()))
    return f"{sum(campaign.outcomes.values())} programs ({found}), {len(campaign.finds)} finds"


def counts(campaign: Campaign) -> str:
    """How many programs had what in them."""
    found = (f"{feature} {campaign.features[feature]}" for feature in FEATURES)
    return textwrap.fill(", ".join(found), 120, break_on_hyphens=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    start = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=options.minutes * 60)
        campaign = Campaign(
            options.folder,
            lambda c: progress.update(task, description=summary(c), completed=time.monotonic() - start),
        )
        campaign.deadline = start + options.minutes * 60
        number = options.seed
        while time.monotonic() < campaign.deadline:
            campaign.round(number)
            number += 1
            if not console.is_terminal:
                print(f"{(time.monotonic() - start) / 60:.1f} min, seed {number}: {summary(campaign)}", flush=True)
    campaign.child.stop()
    console.print(f"{(time.monotonic() - start) / 60:.1f} minutes: {summary(campaign)}")
    print(counts(campaign))
    for kind, file in campaign.finds.items():
        console.print(f"  {file}: {kind}", markup=False)
    return 1 if campaign.finds else 0


if __name__ == "__main__":
    sys.exit(main())
