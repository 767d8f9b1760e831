"""`python -m bench [ingest|cycles|scale|start …]`: the benchmarks named, or every one of them, one after the other."""

import subprocess
import sys

KINDS = ("ingest", "cycles", "scale", "start")


def main() -> None:
    """Each in a process of its own, so that none inherits what another set."""
    for kind in sys.argv[1:] or KINDS:
        if kind not in KINDS:
            raise SystemExit(f"no such benchmark: {kind}; there are {', '.join(KINDS)}")
        print(f"== {kind}", flush=True)
        subprocess.run([sys.executable, "-m", f"bench.{kind}"], check=True)


if __name__ == "__main__":
    main()
