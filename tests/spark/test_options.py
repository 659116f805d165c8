"""Goal: wrong options are refused on the driver in words, all at once, and no secret shows."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import quack.spark
from quack.errors import SparkError
from quack.spark.options import QuackOptions, TableName

GOOD = {"url": "quack:127.0.0.1:9494", "token": "s3cr3t-token", "table": "t"}


def refusal(**changes: str | None) -> str:
    given = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    with pytest.raises(SparkError) as caught:
        QuackOptions.parse(given).check_read()
    return str(caught.value)


def write_refusal(overwrite: bool = False, **changes: str) -> str:
    with pytest.raises(SparkError) as caught:
        QuackOptions.parse({**GOOD, **changes}).check_write(overwrite=overwrite)
    return str(caught.value)


def test_unknown_options_are_named_with_the_known_ones():
    words = refusal(tabel="x", path="y")
    assert "unknown option 'tabel'; known are ca_file, cert_file" in words
    assert "'path' (name the table by option table)" in words


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"url": None}, "option url is missing"),
        ({"url": "http://x"}, "option url: expected quack:host:port[,host:port...]"),
        ({"token": None}, "no token: give token, or token_env"),
        ({"token": "  "}, "option token: is empty"),
        ({"token_env": "X"}, "options token and token_env: give one of them"),
        ({"token": None, "token_env": "QUACK_NO_SUCH"}, "QUACK_NO_SUCH is not set on this host"),
        ({"cert_file": "/nowhere.pem"}, "option cert_file: /nowhere.pem: no such file"),
        ({"key_file": "/nowhere.key"}, "options cert_file and key_file: give both or none"),
        ({"consistency": "strong"}, "option consistency: Input should be 'eventual', 'session'"),
        ({"table": None}, "options table and query: a read needs exactly one of them"),
        ({"query": "SELECT 1"}, "options table and query: a read needs exactly one of them"),
        ({"table": "a.b.c"}, "'a.b.c' is no table name; expected table or schema.table"),
        ({"table": "quack_spark.jobs"}, "schema quack_spark is reserved"),
        ({"columns": "a,,b"}, "option columns: expected column names with commas"),
        ({"columns": "a,A"}, "option columns: a column is named twice"),
        ({"columns": ""}, "option columns: expected column names with commas"),
        ({"columns": '"a'}, "option columns: expected column names with commas"),
        ({"num_partitions": "0"}, "option num_partitions: Input should be greater than or equal"),
        ({"num_partitions": "many"}, "option num_partitions: Input should be a valid integer"),
        ({"partition_column": "a"}, "partition_column, lower_bound and upper_bound: give all"),
        ({"mode": "append"}, "option mode is for writes only"),
        ({"job_id": "x"}, "option job_id is for writes only"),
    ],
)
def test_bad_options_of_a_read(changes, expected):
    words = refusal(**changes)
    assert expected in words
    assert "s3cr3t" not in words


@pytest.mark.parametrize(
    ("changes", "overwrite", "expected"),
    [
        ({"mode": "upsert"}, False, "mode=upsert needs key"),
        ({"mode": "upsert", "key": "a"}, True, "mode=upsert contradicts save mode overwrite"),
        ({"mode": "merge"}, False, "option mode: Input should be 'append' or 'upsert'"),
        ({"key": "a"}, False, "option key is for mode=upsert or create_table=true"),
        ({"group": "g"}, False, "option group is for create_table=true"),
        ({"create_table": "1", "group": "g", "shard_key": "a"}, False, "give one of them"),
        ({"create_table": "1", "initial_groups": "4"}, False, "initial_groups needs shard_key"),
        ({"columns": "a"}, False, "option columns is for reads only"),
        ({"job_id": "unnamed-1"}, False, "names that begin with unnamed- are reserved"),
        ({"max_connections": "0"}, False, "option max_connections: Input should be greater"),
    ],
)
def test_bad_options_of_a_write(changes, overwrite, expected):
    assert expected in write_refusal(overwrite, **changes)


def test_all_mistakes_are_told_at_once():
    words = refusal(url="x", columns="a,,", nope="1")
    assert "option url:" in words
    assert "option columns:" in words
    assert "unknown option 'nope'" in words


def test_the_token_is_in_no_representation():
    options = QuackOptions.parse(GOOD)
    assert options.secret() == "s3cr3t-token"
    assert "s3cr3t" not in repr(options) + str(options) + str(options.model_dump())
    assert pickle.loads(pickle.dumps(options)).secret() == "s3cr3t-token"
    assert b"s3cr3t" not in pickle.dumps(options.without_secret())


def test_a_token_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("QUACK_TEST_TOKEN", "from-there")
    given = {name: value for name, value in GOOD.items() if name != "token"}
    options = QuackOptions.parse({**given, "token_env": "QUACK_TEST_TOKEN"})
    assert options.secret() == "from-there"
    assert b"from-there" not in pickle.dumps(options)
    monkeypatch.delenv("QUACK_TEST_TOKEN")
    with pytest.raises(SparkError, match=r"spark\.executorEnv\.QUACK_TEST_TOKEN"):
        options.secret()


@pytest.mark.parametrize(
    ("words", "schema", "name"),
    [
        ("t", "main", "t"),
        ("s.t", "s", "t"),
        ('"my table"', "main", "my table"),
        ('"a.b"."c""d"', "a.b", 'c"d'),
    ],
)
def test_names_of_tables(words, schema, name):
    assert TableName.parse(words) == TableName(schema_name=schema, name=name)


def test_names_of_columns():
    options = QuackOptions.parse({**GOOD, "columns": ' a ,"b, c","d""e", f g '})
    assert options.columns == ("a", "b, c", 'd"e', "f g")


@pytest.mark.parametrize("words", ["", "a.", ".a", "a b", 'a"b', '"a', "a.b.c"])
def test_names_that_are_none(words):
    with pytest.raises(ValueError, match="is no table name"):
        TableName.parse(words)


def test_java_that_is_missing_or_too_old(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkError, match=r"no Java: '.*nowhere/bin/java' is not there; install"):
        quack.spark.check_environment()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match=r'is openjdk version "11.0.2".*install Java 17 or newer'):
        quack.spark.check_environment()


def test_a_spark_that_is_too_old(monkeypatch):
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    with pytest.raises(SparkError, match=r"pyspark 3\.5\.1 is too old, expected 4\.3 or newer"):
        quack.spark.check_environment()


def test_a_python_without_spark(tmp_path):
    """The package itself must do without pyspark, and say what to install."""
    (tmp_path / "pyspark.py").write_text("raise ImportError('not here')\n")
    code = (
        "import quack, quack.spark\n"
        "try: quack.spark.check_environment()\n"
        "except quack.errors.SparkError as error: print(error)\n"
    )
    path = f"{tmp_path}:{':'.join(sys.path)}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path, "PATH": ""},
        check=True,
    )
    assert "pyspark is not installed" in done.stdout
    assert "pip install 'quack-duckdb[spark]'" in done.stdout


def test_a_master_that_is_none():
    code = (
        "import quack.errors, quack.spark\n"
        "try: quack.spark.start_session('nonsense')\n"
        "except quack.errors.SparkError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Spark does not start with master nonsense: [JAVA_GATEWAY_EXITED]" in done.stdout
    assert "expected local[N], local[*], or the URL of a Spark cluster" in done.stdout
