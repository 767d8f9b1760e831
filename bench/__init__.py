"""Benchmarks: ratios against a raw baseline or a peer in the same run. Never part of pass or fail."""
