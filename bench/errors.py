"""What a benchmark run reports when it cannot give a figure."""


class BenchError(Exception):
    """A system, the broker or the input did something that makes a figure meaningless."""
