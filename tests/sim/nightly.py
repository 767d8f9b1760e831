"""`python -m tests.sim.nightly [--seeds 100000] [--workers N] [--folder F]`: a long simulation that can be resumed.

What is done stands in the folder, a line for each hundred seeds; what is started again goes on from there. Every
failing seed is printed and kept. Ends with 1 where there was one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from pathlib import Path

from tests.sim.coverage import SEEDS, rare
from tests.sim.world import run_seed

PART = 100


def run_part(start: int, stop: int) -> tuple[int, dict[str, int], dict[int, str]]:
    """The seeds from `start` up to `stop`: what happened in them, and what went wrong in which."""
    happened: Counter[str] = Counter()
    failed: dict[int, str] = {}
    for seed in range(start, stop):
        try:
            happened.update(run_seed(seed).happened)
        except Exception as error:  # noqa: BLE001 - whatever broke, the seed is what matters
            failed[seed] = "".join(traceback.format_exception_only(error))
    return start, dict(happened), failed


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.nightly", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000, help="how many")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/sim-nightly"), help="what is kept of an earlier start"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    done_file, failed_file = options.folder / "done.jsonl", options.folder / "failed.txt"
    lines = done_file.read_text(encoding="utf-8").splitlines() if done_file.exists() else []
    happened: Counter[str] = Counter()
    done: set[tuple[int, int]] = set()
    failures = 0
    for line in lines:
        entry = json.loads(line)
        done.add((entry["start"], entry["stop"]))
        happened.update(entry["happened"])
        failures += entry["failed"]
    parts = [(start, min(start + PART, options.seeds)) for start in range(0, options.seeds, PART)]
    left = [part for part in parts if part not in done]
    say(f"{len(parts) - len(left)} of {len(parts)} parts are done, {failures} seeds of them failed")
    stops = dict(left)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for start, counted, failed in pool.imap_unordered(_run, left):
            happened.update(counted)
            failures += len(failed)
            with failed_file.open("a", encoding="utf-8") as kept:
                for seed, why in failed.items():
                    kept.write(f"{seed}\n{why}\n")
                    say(f"FAILED seed {seed}; replay: python -m tests.sim --seed {seed} --trace\n{why}")
            entry = {"start": start, "stop": stops[start], "happened": counted, "failed": len(failed)}
            with done_file.open("a", encoding="utf-8") as kept:
                kept.write(json.dumps(entry) + "\n")
            say(f"{start} to {stops[start] - 1}: {len(failed)} failed")
    say(f"{failures} of {options.seeds} seeds failed")
    if options.seeds >= SEEDS and (seldom := rare(happened)):
        say(f"too seldom: {seldom}")
        return 1
    return 1 if failures else 0


def _run(part: tuple[int, int]) -> tuple[int, dict[str, int], dict[int, str]]:
    return run_part(*part)


if __name__ == "__main__":
    sys.exit(main())
