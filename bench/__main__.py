"""`python -m bench`: every benchmark, one after the other."""

from bench.ingest import main

if __name__ == "__main__":
    main()
