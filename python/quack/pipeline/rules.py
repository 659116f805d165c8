"""Checks of rows in Spark: every row gets the list of the rules that it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quack.errors import PipelineError
from quack.pipeline.job import Range, Rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["CORRUPT", "PROBLEMS", "spark_name", "with_problems"]

#: Column with the broken rules; NULL for a good row.
PROBLEMS = "__quack_problems"
#: Column in which Spark keeps the text of a row that it cannot parse.
CORRUPT = "__quack_text"


def spark_name(name: str) -> str:
    """Return the name of a column for Spark, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def with_problems(frame: DataFrame, rules: Rules, not_null: Sequence[str], what: str) -> DataFrame:
    """Return the rows with column `PROBLEMS`.

    Args:
        frame: may have column `CORRUPT`.
        rules: of the job.
        not_null: columns that the table refuses NULL in, besides those of the rules.
        what: for the message.

    Raises:
        PipelineError: a rule names a column that is not there, has a bound that is no value of its
            column, or has no valid condition.

    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    _check_names(frame, rules, what)
    broken: list[tuple[str, Any]] = []
    if CORRUPT in frame.columns:
        broken.append(("cannot be parsed", f.col(CORRUPT).isNotNull()))
    for name in dict.fromkeys([*rules.not_null, *not_null]):
        broken.append((f"not_null {name}", f.col(spark_name(name)).isNull()))
    for keys in rules.unique:
        window = Window.partitionBy(*(f.col(spark_name(name)) for name in keys))
        twice = f.count(f.lit(1)).over(window) > 1
        if CORRUPT in frame.columns:  # the key of such a row is not known
            twice = twice & f.col(CORRUPT).isNull()
        broken.append((f"unique {', '.join(keys)}", twice))
    types = {field.name.lower(): field.dataType for field in frame.schema.fields}
    _check_bounds(frame.sparkSession, rules, types, what)
    for name, bounds in rules.range.items():
        broken.append(
            (f"range {name}", _outside(f.col(spark_name(name)), bounds, types[name.lower()]))
        )
    for name, condition in rules.check.items():
        broken.append((f"check {name}", ~f.coalesce(f.expr(condition), f.lit(False))))
    if not broken:
        return frame.withColumn(PROBLEMS, f.lit(None).cast("array<string>"))
    try:
        found = f.filter(f.array(*(f.when(is_so, f.lit(word)) for word, is_so in broken)), _is_set)
        return frame.withColumn(PROBLEMS, f.when(f.size(found) > 0, found))
    except Exception as error:
        raise PipelineError(f"{what}: rules: {_first_line(error)}") from None


def _is_set(word: Column) -> Column:
    return word.isNotNull()


def _outside(column: Column, bounds: Range, kind: Any) -> Column:
    from pyspark.sql import functions as f

    parts = []
    if bounds.min is not None:
        parts.append(column < f.lit(bounds.min).cast(kind))
    if bounds.max is not None:
        parts.append(column > f.lit(bounds.max).cast(kind))
    result = parts[0]
    for part in parts[1:]:
        result = result | part
    return result


def _check_bounds(spark: SparkSession, rules: Rules, types: dict[str, Any], what: str) -> None:
    """Find bounds that are no values of their columns here, not in a task of a long run."""
    from pyspark.sql import functions as f

    problems = []
    for name, bounds in rules.range.items():
        kind = types[name.lower()]
        for side, value in (("min", bounds.min), ("max", bounds.max)):
            if value is None:
                continue
            given = f.lit(value)
            cast = given.try_cast(kind)
            # A number must be the same one: 5.7 as the bound of whole numbers would become 5.
            fits = cast.isNotNull() if isinstance(value, str) else cast == given
            try:
                row = spark.sql("SELECT 1").select(f.coalesce(fits, f.lit(False))).first()
                if row is not None and row[0]:
                    continue
            except Exception as error:
                if getattr(error, "getSqlState", None) is None:  # no error of Spark's analysis
                    raise
            problems.append(
                f"{what}: rules.range.{name}.{side}: {value!r} is not a value of "
                f"{kind.simpleString()}, the type of the column"
            )
    if problems:
        raise PipelineError("\n".join(problems))


def _check_names(frame: DataFrame, rules: Rules, what: str) -> None:
    has = {name.lower() for name in frame.columns}
    named = [("not_null", rules.not_null), ("range", list(rules.range))]
    named += [("unique", keys) for keys in rules.unique]
    problems = [
        f"{what}: rules.{rule} names column {name}, which is not there; there are "
        + ", ".join(name for name in frame.columns if name != CORRUPT)
        for rule, names in named
        for name in names
        if name.lower() not in has
    ]
    if problems:
        raise PipelineError("\n".join(problems))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
