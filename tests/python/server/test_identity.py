"""Goal: a client certificate of the cluster's authority opens a session without a token, when the node is told so."""

from __future__ import annotations

import ssl

import pytest
import quack_wire as wire
from server_node import make_cluster, wait_leader

from quack.certs import CertificateAuthority

pytestmark = pytest.mark.cluster


def test_certificate_instead_of_token(tmp_path):
    (node,) = make_cluster(tmp_path, 1)
    node.parameters["accept_client_certificates"] = True
    node.start()
    try:
        wait_leader([node])
        authority = CertificateAuthority.open(tmp_path / "ca")
        files = authority.issue_client(tmp_path / "client", "analyst")
        anonymous = node.tls
        with pytest.raises(wire.QuackError, match="no token came"):
            node.session("")
        node.tls = ssl.create_default_context(cafile=str(tmp_path / "ca" / "ca.pem"))
        node.tls.load_cert_chain(files.cert_file, files.key_file)
        session = node.session("")
        assert session.query("SELECT 1") == [(1,)]
        assert node.sql("SELECT client_certificate FROM quack_sessions()") == [["analyst"]]
        node.tls = anonymous
        assert node.session().query("SELECT 2") == [(2,)]
    finally:
        node.stop()


def test_certificate_is_not_enough_by_default(tmp_path):
    (node,) = make_cluster(tmp_path, 1)
    node.start()
    try:
        wait_leader([node])
        files = CertificateAuthority.open(tmp_path / "ca").issue_client(
            tmp_path / "client", "analyst"
        )
        node.tls.load_cert_chain(files.cert_file, files.key_file)
        with pytest.raises(
            wire.QuackError,
            match=r"no token came.*accept_client_certificates be true in the file of every node",
        ):
            node.session("")
    finally:
        node.stop()
