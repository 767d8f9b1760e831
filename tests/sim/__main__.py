"""`python -m tests.sim [--seed N] [--seeds M] [--trace]`: simulate seeds and say what happened."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter

from tests.sim.world import run_seed


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "0")), help="the first seed")
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("SEEDS", "1")), help="how many")
    parser.add_argument("--trace", action="store_true", help="print every line of each seed's trace")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failing seed")
    options = parser.parse_args()
    started = time.perf_counter()
    failed: list[int] = []
    counted: Counter[str] = Counter()
    deaths: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            report = run_seed(seed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever broke, the seed is what matters
            failed.append(seed)
            notes = getattr(error, "__notes__", [])
            if not options.trace:
                error.__notes__ = [note[:600] + " …\n" + note[-3500:] for note in notes]
            traceback.print_exception(error)
            say(f"FAILED seed {seed}; replay: make sim SEED={seed}   (python -m tests.sim --seed {seed} --trace)")
            if not options.keep_going:
                return 1
            continue
        counted.update(report.outcomes)
        deaths.update(report.deaths)
        if options.trace or options.seeds <= 20:
            say(str(report))
    seconds = time.perf_counter() - started
    say(f"{options.seeds} seeds from {options.seed} in {seconds:.1f} s, {options.seeds / seconds:.1f} a second")
    for name, times in counted.most_common():
        say(f"{times:6} {name}")
    say("deaths: " + ", ".join(f"{times} {why}" for why, times in sorted(deaths.items())))
    if failed:
        say(f"failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
