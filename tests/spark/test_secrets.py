"""Goal: what Spark keeps of a job, in plans, status and errors, has no token."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

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
