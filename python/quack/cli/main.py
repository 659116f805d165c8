"""Entry point of the `quack` command."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Annotated

import typer

from quack.cli import backup, certs, changes, cluster, cp_metadata, log, node, pipeline, spark
from quack.cli.options import AsJson, CaFile, Config, TokenFile, Url
from quack.errors import ConfigError, QuackError

app = typer.Typer(
    name="quack",
    help="Raft-replicated DuckDB: run nodes, make certificates, look after a cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(certs.app, name="certs")
app.add_typer(cp_metadata.app, name="cp-metadata")
app.add_typer(cluster.app, name="cluster")
app.add_typer(node.app, name="node")
app.add_typer(log.app, name="log")
app.add_typer(backup.app, name="backup")
app.add_typer(spark.app, name="spark")
app.add_typer(pipeline.app, name="pipeline")
app.command()(backup.restore)
app.command()(changes.changes)


@app.command()
def dev(
    directory: Annotated[pathlib.Path, typer.Option("--dir", help="Folder of the cluster.")],
    nodes: Annotated[int, typer.Option("--nodes", help="Number of voters.")] = 3,
) -> None:
    """Make (or reopen) a cluster on this machine and run it until Ctrl-C."""
    from quack.cli.dev import run_dev

    raise typer.Exit(run_dev(directory, nodes))


@app.command()
def doctor(
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Examine a node, its machine and its peers; every finding with its fix. Exit code 1 on one."""
    from quack.cluster.target import Target
    from quack.doctor import examine_config, examine_url

    if (config is None) == (url is None):
        raise ConfigError(["give exactly one of --config and --url"])
    if config is not None:
        report = examine_config(config)
    else:
        report = examine_url(Target.from_options(None, url, ca_file, token_file))
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        for finding in report.findings:
            typer.echo(f"{finding.level:8} {finding.check:12} {finding.subject}: {finding.message}")
            if finding.fix:
                typer.echo(f"{'':8} {'':12} fix: {finding.fix}")
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def version() -> None:
    """Print the versions of the package and of DuckDB."""
    import duckdb

    import quack

    typer.echo(f"quack-duckdb {quack.__version__}, DuckDB {duckdb.__version__}")


def main() -> int:
    """Run the command line; returns the exit code. Mistakes of the user end with code 2."""
    try:
        result = app(standalone_mode=False)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return 2
    except QuackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except typer.Exit as done:
        return done.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        show = getattr(error, "show", None)  # click's usage errors print themselves
        if show is None:
            raise
        show()
        return 2
    return result if isinstance(result, int) else 0
