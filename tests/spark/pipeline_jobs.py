"""Jobs and rows for the tests of the pipeline."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import quack.pipeline
from quack.pipeline import Cluster, Job, Summary


@dataclass
class Pipeline:
    """A lake of its own, and jobs for it."""

    spark: object
    folder: pathlib.Path
    cluster: Cluster
    #: Of the lake, in the catalog.
    schema: str
    sql: Callable[..., list]
    location: str
    token: str
    place: dict[str, object]

    def job(self, *steps: dict[str, object], job_id: str | None = None) -> Job:
        lake = {"location": self.location, "catalog": self.schema, **self.place}
        return Job.model_validate(
            {
                "job_id": job_id or f"job-{uuid.uuid4().hex[:8]}",
                "cluster": self.cluster,
                "lake": lake,
                "steps": list(steps),
            }
        )

    def run(self, *steps: dict[str, object], job_id: str | None = None, **how) -> Summary:
        return quack.pipeline.run(self.job(*steps, job_id=job_id), spark=self.spark, **how)

    def rows(self, first: int, last: int, name: str | None = None) -> dict[str, object]:
        """A source of JSON files with ids from first up to last."""
        folder = self.folder / (name or f"rows-{uuid.uuid4().hex[:8]}")
        folder.mkdir()
        text = "".join(
            f'{{"id": {number}, "part": "p{number % 3}", "amount": {number / 4}}}\n'
            for number in range(first, last)
        )
        (folder / "rows.json").write_text(text)
        columns = {"id": "bigint", "part": "string", "amount": "double"}
        return {"format": "json", "path": str(folder), "columns": columns}

    def ingest(self, first: int, last: int, **more: object) -> dict[str, object]:
        step = {"kind": "ingest", "table": "rows", "source": self.rows(first, last)}
        return {**step, "partition_by": ["part"], **more}

    def files(self) -> list[pathlib.Path]:
        """What lies in a local lake."""
        return sorted(file for file in pathlib.Path(self.location).rglob("*") if file.is_file())

    def metadata(self, table: str, what: str = "*") -> list:
        return self.sql(f"SELECT {what} FROM {self.schema}.{table} ORDER BY ALL")

    def ids(self) -> list[int]:
        """The ids that a reader finds in the files which the catalog lists."""
        import duckdb

        paths = [row[0] for row in self.sql(f"SELECT path FROM {self.schema}.quack_live_files")]
        if not paths:
            return []
        return [row[0] for row in duckdb.read_parquet(paths).order("id").project("id").fetchall()]
