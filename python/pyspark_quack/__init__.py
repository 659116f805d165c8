"""Spark looks for modules named ``pyspark_*`` and takes their `DefaultSource`: format `quack`."""

from quack.spark.source import QuackDataSource

__all__ = ["DefaultSource"]


class DefaultSource(QuackDataSource):
    """The data source `quack`, registered by being installed."""
