"""Bulk data beside the cluster: Parquet in object storage, its metadata in the replicated catalog.

`load_job` reads a job file and `run` executes it on Spark; `quack pipeline run JOB.yaml` is the
same on the command line. DESIGN.md has the argument.
"""

from quack.pipeline.context import StepSummary
from quack.pipeline.job import (
    Cluster,
    Compact,
    Expire,
    Ingest,
    Job,
    LakePlace,
    Rules,
    Source,
    Tier,
    Verify,
    load_job,
)
from quack.pipeline.runner import Summary, run

__all__ = [
    "Cluster",
    "Compact",
    "Expire",
    "Ingest",
    "Job",
    "LakePlace",
    "Rules",
    "Source",
    "StepSummary",
    "Summary",
    "Tier",
    "Verify",
    "load_job",
    "run",
]
