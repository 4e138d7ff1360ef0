"""headwise beside what torch offers, timed in turn in one process: python -m benchmarks."""
