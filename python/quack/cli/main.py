"""Entry point of the `quack` command."""

from __future__ import annotations

import pathlib
import sys
from typing import Annotated

import typer

from quack.cli import certs, cp_metadata
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


@app.command()
def node(
    config: Annotated[pathlib.Path, typer.Option("--config", help="The node's YAML file.")],
) -> None:
    """Run a voter in the foreground; SIGTERM stops it cleanly."""
    from quack.config import load_config
    from quack.node import run_node

    raise typer.Exit(run_node(load_config(config)))


@app.command()
def dev(
    directory: Annotated[pathlib.Path, typer.Option("--dir", help="Folder of the cluster.")],
    nodes: Annotated[int, typer.Option("--nodes", help="Number of voters.")] = 3,
) -> None:
    """Make (or reopen) a cluster on this machine and run it until Ctrl-C."""
    from quack.cli.dev import run_dev

    raise typer.Exit(run_dev(directory, nodes))


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
