"""`quack certs`: authority, identities, checks."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated

import typer

app = typer.Typer(help="Certificates of a cluster.", no_args_is_help=True)

_CaDir = Annotated[pathlib.Path, typer.Option("--ca-dir", help="Folder of ca.pem and ca.key.")]


@app.command("init-ca")
def init_ca(
    ca_dir: _CaDir,
    days: Annotated[int, typer.Option("--days", min=1, help="Lifetime.")] = 3650,
) -> None:
    """Make a new certificate authority. An existing one is never overwritten."""
    from quack.certs import CertificateAuthority

    CertificateAuthority.create(ca_dir, days=days)
    typer.echo(f"wrote {ca_dir / 'ca.pem'} and {ca_dir / 'ca.key'} (keep the key safe)")


@app.command()
def issue(
    ca_dir: _CaDir,
    out_dir: Annotated[pathlib.Path, typer.Option("--out-dir", help="Where the files go.")],
    node: Annotated[str | None, typer.Option("--node", help="Node id.")] = None,
    client: Annotated[str | None, typer.Option("--client", help="Client name.")] = None,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="Name or address clients dial; repeatable.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, help="Lifetime.")] = 825,
) -> None:
    """Issue a node identity (--node) or a client identity (--client)."""
    from quack.certs import CertificateAuthority

    if (node is None) == (client is None):
        raise typer.BadParameter("give exactly one of --node and --client")
    authority = CertificateAuthority.open(ca_dir)
    if node is not None:
        files = authority.issue_node(out_dir, node, hosts=host or [], days=days)
    else:
        files = authority.issue_client(out_dir, str(client), days=days)
    typer.echo(f"wrote {files.cert_file}, {files.key_file}, {files.ca_file}")


@app.command()
def verify(
    cert_file: Annotated[pathlib.Path, typer.Argument(help="PEM certificate.")],
    key_file: Annotated[pathlib.Path | None, typer.Option("--key-file")] = None,
    ca_file: Annotated[pathlib.Path | None, typer.Option("--ca-file")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Check the node contract.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a certificate; every problem is named with its fix. Exit code 1 when there is one."""
    from quack.certs import verify_certificate

    report = verify_certificate(cert_file, key_file=key_file, ca_file=ca_file, node_id=node)
    if as_json:
        document = {**report.__dict__, "expires": report.expires.isoformat(), "ok": report.ok}
        typer.echo(json.dumps(document))
    else:
        typer.echo(f"{report.file}: {', '.join(report.names) or 'no names'}")
        typer.echo(f"  issuer {report.issuer}, expires {report.expires:%Y-%m-%d %H:%M} UTC")
        for problem in report.problems:
            typer.echo(f"  problem: {problem}")
        typer.echo("  ok" if report.ok else "  not usable")
    raise typer.Exit(0 if report.ok else 1)
