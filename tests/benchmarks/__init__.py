"""The tests of the benchmarks: nothing here is timed."""
