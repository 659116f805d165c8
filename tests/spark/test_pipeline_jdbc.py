"""Goal: rows come from a database as they are there; failures are named, and no password shows."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from test_secrets import kept_by_spark

import quack.pipeline
from postgres_server import DRIVER, JAR, postgres
from quack.errors import ConfigError, PipelineError
from quack.pipeline import load_job

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TABLE = """
CREATE TABLE rare (id bigint PRIMARY KEY, price numeric(20, 4), name text, local timestamp,
    instant timestamptz, flag boolean, day date, part varchar(2), bytes bytea, ratio real);
INSERT INTO rare VALUES
    (1, 1234567890123456.7891, 'Ünï ''x''', '2024-03-31 02:30:00.123456',
        '2024-03-31 02:30:00.5+00', true, '2024-02-29', 'a', '\\x00ff', 1.5),
    (2, -0.0001, '', '1969-12-31 23:59:59', '1969-12-31 23:59:59+00', false, '0001-01-01', 'b', '', 'NaN'),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE many AS SELECT i AS id, i / 4.0::double precision AS amount FROM generate_series(0, 999) s(i);
"""


@pytest.fixture(scope="module")
def database():
    with postgres() as server:
        server.run(TABLE)
        yield server


@pytest.fixture
def source(database, monkeypatch):
    """A source of a job; the password is in a variable."""
    monkeypatch.setenv("QUACK_TEST_PASSWORD", database.password)

    def make(**options: object) -> dict[str, object]:
        given = {"url": database.url, "user": database.user, "driver": DRIVER, **options}
        return {
            "format": "jdbc",
            "options": given,
            "options_env": {"password": "QUACK_TEST_PASSWORD"},
        }

    return make


def ingest(source: dict[str, object], **more: object) -> dict[str, object]:
    return {"kind": "ingest", "table": "rows", "source": source, **more}


def test_every_type_comes_as_it_was(pipeline, source):
    """The summer time of the session's zone begins within: a time without zone is not moved."""
    view = "rare_" + pipeline.schema
    done = pipeline.run(ingest(source(dbtable="rare"), view=view), {"kind": "verify"})
    assert done.ok
    assert done.steps[0].counts["rows"] == 3
    rows = pipeline.sql(
        f"SELECT id, price::VARCHAR, name, local::VARCHAR, epoch_us(instant), flag, day::VARCHAR, "
        f"part, bytes, ratio::VARCHAR FROM main.{view} ORDER BY id"
    )
    assert rows == [
        (
            *(1, "1234567890123456.7891", "Ünï 'x'", "2024-03-31 02:30:00.123456"),
            *(1711852200500000, True, "2024-02-29", "a", b"\x00\xff", "1.5"),
        ),
        (
            *(2, "-0.0001", "", "1969-12-31 23:59:59"),
            *(-1000000, False, "0001-01-01", "b", b"", "nan"),
        ),
        (3, *[None] * 9),
    ]
    types = dict(pipeline.metadata("ducklake_column", "column_name, column_type"))
    assert types["price"] == "decimal(20,4)"
    assert (types["local"], types["instant"]) == ("timestamp", "timestamptz")


def test_a_query_in_partitions_with_the_password_in_a_file(pipeline, source, database):
    secret = pipeline.folder / "password"
    secret.write_text(database.password + "\n")
    given = source(
        dbtable="(SELECT id, amount, 'p' || id % 3 AS part FROM many) AS q",
        partitionColumn="id",
        lowerBound=0,
        upperBound=1000,
        numPartitions=3,
    )
    del given["options_env"]
    given["options_file"] = {"password": str(secret)}
    job = pipeline.job(ingest(given, partition_by=["part"]), {"kind": "verify"})
    assert quack.pipeline.run(job, spark=pipeline.spark).ok
    assert quack.pipeline.run(job, spark=pipeline.spark).steps[0].state == "already_done"
    assert pipeline.ids() == list(range(1000))


def test_the_password_is_nowhere(pipeline, source, database):
    job = pipeline.job(ingest(source(query="SELECT id, amount FROM many")))
    done = quack.pipeline.run(job, spark=pipeline.spark)
    kept = pipeline.metadata("quack_step") + pipeline.metadata("ducklake_snapshot_changes")
    shown = json.dumps(done.as_dict()) + job.model_dump_json() + repr(job) + str(kept)
    arguments = b"".join(
        file.read_bytes() for file in pathlib.Path("/proc").glob("[0-9]*/cmdline") if is_there(file)
    )
    kept_in_plans = kept_by_spark(pipeline.spark)
    assert "JDBCRelation" in kept_in_plans
    assert database.password not in shown + kept_in_plans
    assert database.password.encode() not in arguments


def test_the_job_of_the_readme(pipeline, database, monkeypatch):
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    (job,) = (one for one in re.findall(r"```yaml\n(.*?)```", readme, re.S) if "jdbc:" in one)
    assert str(JAR) in job
    server = database.url.removeprefix("jdbc:postgresql://")
    job = job.replace("db:5432/shop", server).replace("user: shop", f"user: {database.user}")
    database.run("CREATE TABLE orders AS SELECT 1 AS id")
    monkeypatch.setenv("SHOP_PASSWORD", database.password)
    place = json.dumps({"location": pipeline.location, "catalog": pipeline.schema})
    file = pipeline.folder / "job.yaml"
    file.write_text(f"job_id: shop\nlake: {place}\n{job}")
    cluster = pipeline.cluster.options()
    quack.pipeline.run(load_job(file), cluster=cluster, spark=pipeline.spark)
    assert pipeline.ids() == [1]


def is_there(file: pathlib.Path) -> bool:
    try:
        return bool(file.read_bytes())
    except OSError:  # the process has ended
        return False


def test_what_fails_is_named_and_leaves_nothing(pipeline, source, database, monkeypatch):
    def refusal(given: dict[str, object], words: str) -> str:
        with pytest.raises(PipelineError, match=words) as raised:
            pipeline.run(ingest(given))
        assert database.password not in str(raised.value)
        assert "\tat " not in str(raised.value)
        return str(raised.value)

    refusal(source(dbtable="nobody"), 'cannot read the source.*relation "nobody" does not exist')
    refusal(source(query="SELECT * FROM many WHERE"), "cannot read the source.*syntax error")
    refusal(source(), "'dbtable' or 'query' is required")
    missing = refusal(source(dbtable="many", driver="org.nobody.Driver"), "org.nobody.Driver")
    assert "spark.jars" in missing
    unknown = source(dbtable="many", url="jdbc:nobody://x")
    del unknown["options"]["driver"]
    assert "spark.jars" in refusal(unknown, "No suitable driver")
    refusal(source(dbtable="many", url="jdbc:postgresql://127.0.0.1:9/x"), "Connection .*refused")
    broken = source(query="SELECT id / (id - 500) AS id FROM many")
    refusal(broken, "cannot write its files.*division by zero")

    secret_url = f"jdbc:nobody://x?password={database.password}"
    within = source(dbtable="many")
    del within["options"]["url"]
    within["options_env"]["url"] = "QUACK_TEST_URL"
    monkeypatch.setenv("QUACK_TEST_URL", secret_url)
    refusal(within, "cannot read the source")
    monkeypatch.setenv("QUACK_TEST_PASSWORD", "not-the-password")
    text = refusal(source(dbtable="many"), "password authentication failed for user")
    assert "not-the-password" not in text
    monkeypatch.delenv("QUACK_TEST_PASSWORD")
    refusal(source(dbtable="many"), "variable QUACK_TEST_PASSWORD is not set")
    unreadable = source(dbtable="many")
    unreadable["options_file"] = {"password": str(pipeline.folder / "nowhere")}
    del unreadable["options_env"]
    refusal(unreadable, "options_file.password: .*nowhere cannot be read: No such file")
    assert pipeline.files() == []
    assert pipeline.metadata("ducklake_table") == []
    assert pipeline.metadata("quack_run") == []


@pytest.mark.parametrize(
    "option",
    [
        "password: hidden",
        "url: 'jdbc:postgresql://h/d?user=x&password=hidden'",
        "url: 'jdbc:sqlserver://h;Password = hidden;encrypt=true'",
        "url: 'jdbc:postgresql://x:hidden@h/d'",
        "url: 'jdbc:oracle:thin:x/hidden@//h/d'",
    ],
)
def test_passwords_are_refused_in_job_files(tmp_path, option):
    file = tmp_path / "job.yaml"
    file.write_text(
        f"""job_id: x
lake: {{location: lake}}
steps:
  - kind: ingest
    table: t
    source: {{format: jdbc, options: {{dbtable: t, {option}}}, options_file: {{password: pw}}}}
"""
    )
    with pytest.raises(ConfigError, match="secrets are not for job files") as raised:
        load_job(file)
    assert "hidden" not in str(raised.value)
    file.write_text(file.read_text().replace(option, "url: 'jdbc:postgresql://h:5432/d?user=x'"))
    (step,) = load_job(file).steps
    assert step.source.options_file == {"password": tmp_path / "pw"}
