"""Goal: every mistake in a node's file is reported at once, with its line and the fix."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml

from quack.cluster.bootstrap import generate_local_configs
from quack.config import load_config, parse_peer
from quack.errors import ConfigError


@pytest.fixture
def node_file(tmp_path: pathlib.Path) -> pathlib.Path:
    return generate_local_configs(tmp_path / "c", 3, ports=[9001, 9002, 9003])[0].config_file


def problems_of(file: pathlib.Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    return caught.value.problems


def edit(file: pathlib.Path, change) -> pathlib.Path:
    document = yaml.safe_load(file.read_text())
    change(document)
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def line_of(file: pathlib.Path, text: str) -> int:
    return next(n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)


def test_generated_files_are_valid_and_private(node_file):
    config = load_config(node_file)
    assert config.node_id() == "n0"
    assert [peer.port for peer in config.peers()] == [9001, 9002, 9003]
    assert node_file.stat().st_mode & 0o077 == 0
    assert (node_file.parent / "n0" / "n0.key").stat().st_mode & 0o077 == 0
    assert "token" not in repr(config).replace("cp_metadata_token", "")


def test_a_second_generation_never_overwrites(node_file):
    with pytest.raises(ConfigError, match="holds a cluster already"):
        generate_local_configs(node_file.parent, 3)


def test_all_mistakes_come_at_once_with_lines(node_file):
    def change(document):
        document["colour"] = "red"
        document["cluster_mode"]["cp_metadata_port"] = 99999
        document["cluster_mode"]["cp_metadata_peers"][1] = "n1=10.0.0.1"
        del document["data_dir"]

    found = "\n".join(problems_of(edit(node_file, change)))
    assert f"{node_file}:{line_of(node_file, 'colour')}: colour: unknown key" in found
    assert f":{line_of(node_file, 'cp_metadata_port')}: cluster_mode.cp_metadata_port" in found
    assert f":{line_of(node_file, 'n1=10.0.0.1')}: " in found
    assert "expected '<node_id>:voter=quack:<host>:<port>'" in found
    assert "data_dir: missing" in found


def test_malformed_yaml_names_the_line(node_file):
    node_file.write_text("cluster_mode:\n  enabled: true\n bad: [\n")
    (problem,) = problems_of(node_file)
    assert problem.startswith(f"{node_file}:3: not valid YAML")


def test_a_key_given_twice_is_refused(node_file):
    node_file.write_text(node_file.read_text() + "data_dir: elsewhere\n")
    assert any("data_dir: given twice" in problem for problem in problems_of(node_file))


def test_no_such_file_and_not_a_mapping(tmp_path):
    assert "cannot be read" in problems_of(tmp_path / "none.yaml")[0]
    (tmp_path / "list.yaml").write_text("- 1\n")
    assert "expected a mapping" in problems_of(tmp_path / "list.yaml")[0]


def test_another_nodes_certificate_is_refused_with_both_names(node_file):
    def change(document):
        document["cluster_mode"]["tls"]["cert_file"] = "n1/n1.pem"
        document["cluster_mode"]["tls"]["key_file"] = "n1/n1.key"

    found = "\n".join(problems_of(edit(node_file, change)))
    assert "expected the name DNS:n0" in found
    assert "DNS:n1" in found


def test_key_of_another_certificate(node_file):
    def change(document):
        document["cluster_mode"]["tls"]["key_file"] = "n1/n1.key"

    assert any("does not belong" in problem for problem in problems_of(edit(node_file, change)))


def test_plain_text_needs_loopback_and_the_word(node_file):
    def change(document):
        del document["cluster_mode"]["tls"]

    assert any("mTLS is required" in problem for problem in problems_of(edit(node_file, change)))

    def allow(document):
        document["cluster_mode"]["allow_plaintext_loopback"] = True

    config = edit(node_file, allow)
    assert load_config(config).cluster_mode.tls is None

    def certificates(document):
        document["cluster_mode"]["accept_client_certificates"] = True

    assert any("needs tls:" in problem for problem in problems_of(edit(config, certificates)))


def test_certificates_instead_of_tokens_are_for_who_asks(node_file):
    def told(file):
        return json.loads(load_config(file).start_parameters())["accept_client_certificates"]

    assert told(node_file) is False

    def change(document):
        document["cluster_mode"]["accept_client_certificates"] = True

    assert told(edit(node_file, change)) is True


def test_own_port_must_match_the_peer_list(node_file):
    def change(document):
        document["cluster_mode"]["cp_metadata_port"] = 9009

    assert any(
        "differs from this node's port 9001" in p for p in problems_of(edit(node_file, change))
    )


def test_heartbeat_must_fit_the_election_timeout(node_file):
    def change(document):
        document["election_timeout_ms"] = 100

    assert any("more than a third" in problem for problem in problems_of(edit(node_file, change)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n0",
        "n0:voter",
        "n0:boss=quack:h:1",
        "n0:voter=http:h:1",
        "n0:voter=quack:h:0",
        "-:voter=quack:h:1",
    ],
)
def test_bad_peers_are_refused(text):
    with pytest.raises(ValueError, match=r"expected|node id|port"):
        parse_peer(text)


def test_peers_with_ipv6():
    peer = parse_peer("n0:learner=quack:[::1]:9494")
    assert (peer.node_id, peer.role, peer.host, peer.port) == ("n0", "learner", "::1", 9494)


def test_bounds_of_the_log_are_checked_and_passed_on(node_file):
    def set_to(entries, tail):
        return lambda document: document.update(
            checkpoint_log_entries=entries, log_tail_entries=tail
        )

    found = "\n".join(problems_of(edit(node_file, set_to(999, -1))))
    assert "checkpoint_log_entries" in found and "1000" in found
    assert "log_tail_entries" in found
    passed = json.loads(load_config(edit(node_file, set_to(1000, 0))).start_parameters())
    assert (passed["checkpoint_log_entries"], passed["log_tail_entries"]) == (1000, 0)
