"""The one error that a person running the benchmarks sees: a sentence saying what to do."""


class BenchmarkError(Exception):
    """The run cannot go on; the message says why and what would help."""
