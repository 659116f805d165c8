"""Goal: what Spark keeps of a job, in plans, status and errors, has no token."""

from __future__ import annotations

import pytest
import yaml
from pyspark.errors import PySparkException

from quack.cluster.local import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def kept_by_spark(spark) -> str:
    """Plans and texts of all executions that the status store of Spark remembers."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    texts = []
    for number in range(executions.size()):
        one = executions.apply(number)
        texts += [
            one.description(),
            one.details(),
            one.physicalPlanDescription(),
            str(one.modifiedConfigs()),
        ]
        plan = store.planGraph(one.executionId()).allNodes()
        texts += [plan.apply(node).desc() for node in range(plan.size())]
    return "\n".join(texts)


def test_no_token_is_kept(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY)")
    where = {**options, "table": table}
    spark.range(5).write.format("quack").options(**where).mode("append").save()
    spark.read.format("quack").options(**where).load().collect()
    with pytest.raises(PySparkException) as caught:
        spark.range(5).write.format("quack").options(**where).mode("append").save()
    kept = kept_by_spark(spark)
    assert "quack" in kept
    assert options["token"] not in kept
    assert options["token"] not in str(caught.value)


def test_a_certificate_instead_of_a_token(spark, tmp_path):
    with LocalCluster.create(tmp_path, 1) as cluster:
        file = cluster.nodes[0].config_file
        document = yaml.safe_load(file.read_text())
        document["cluster_mode"]["accept_client_certificates"] = True
        file.write_text(yaml.safe_dump(document))
        cluster.start()
        where = {
            "url": f"quack:{cluster.nodes[0].endpoint}",
            "ca_file": str(tmp_path / "ca" / "ca.pem"),
            "cert_file": str(tmp_path / "client.pem"),
            "key_file": str(tmp_path / "client.key"),
            "table": "t",
        }
        writing = spark.range(5).write.format("quack").options(**where, create_table="true")
        writing.mode("append").save()
        assert spark.read.format("quack").options(**where).load().count() == 5
