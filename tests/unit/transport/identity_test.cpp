#include "quack/transport/peer_identity.hpp"
#include "test_client.hpp"
#include "test_node.hpp"

namespace quack {
namespace transport {

namespace {

//! n0 is good; n1 has the certificate under test. Both dial each other.
struct Pair {
	TemporaryFolder folder;
	TestAuthority authority {"cluster ca"};
	TestNode good;
	TestNode bad;

	explicit Pair(const CertificateSpec &spec) : Pair(spec, authority) {
	}
	Pair(const CertificateSpec &spec, const TestAuthority &signer)
	    : good("n0", authority.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0"))),
	      bad("n1", signer.IssueFiles(folder, "n1", spec)) {
		WriteFile(bad.config.tls.ca_file, authority.Pem());
		bad.config.check_own_certificate = false;
	}

	//! Both sides learn the reason, in both directions of dialing: the bad node dials and is refused in words; the good
	//! node dials, refuses the bad listener and tells it.
	void ExpectRefused(const std::vector<std::string> &words) {
		good.Start();
		bad.Start();
		good.Get().SetPeers({bad.Address()});
		bad.Get().SetPeers({good.Address()});
		WaitUntil([&] {
			return HasAll(good.Peer("n1").last_error, words) && HasAll(bad.Peer("n0").last_error, words) &&
			       good.HasRefusal(words) && bad.HasRefusal(words);
		});
		CHECK_MESSAGE(HasAll(good.Peer("n1").last_error, words), good.Peer("n1").last_error);
		CHECK_MESSAGE(HasAll(bad.Peer("n0").last_error, words), bad.Peer("n0").last_error);
		CHECK_MESSAGE(good.HasRefusal(words), good.RefusalText());
		CHECK_MESSAGE(bad.HasRefusal(words), bad.RefusalText());
		CHECK_MESSAGE(HasAll(good.Peer("n1").last_inbound_refusal, words), good.Peer("n1").last_inbound_refusal);
		CHECK(good.UpCount("n1") == 0);
		CHECK(bad.UpCount("n0") == 0);
		CHECK(good.Get().Send("n1", "x").Code() == ErrorCode::Unavailable);
	}
};

} // namespace

// Goal of the next cases: each unfit certificate is refused in words on both sides: expected names, names that came,
// issuer, validity, EKUs, fix.
TEST_CASE("a certificate with the name only as CN is refused") {
	CertificateSpec spec;
	spec.common_name = "n1";
	Pair(spec).ExpectRefused({"SAN DNS:n1 is missing", "SAN URI:n1 is missing", "common name is not accepted",
	                          "CN='n1'", "issuer='CN=cluster ca'", "EKU:[serverAuth, clientAuth]", "valid from",
	                          "fix:"});
}

TEST_CASE("a certificate without URI SAN is refused") {
	CertificateSpec spec;
	spec.alternative_names = {"DNS:n1", "IP:127.0.0.1"};
	Pair(spec).ExpectRefused({"SAN URI:n1 is missing", "DNS:[n1]", "URI:[]", "IP:[127.0.0.1]", "fix:"});
}

TEST_CASE("a certificate without DNS SAN is refused") {
	CertificateSpec spec;
	spec.alternative_names = {"URI:n1"};
	Pair(spec).ExpectRefused({"SAN DNS:n1 is missing", "DNS:[]", "URI:[n1]", "fix:"});
}

TEST_CASE("a certificate without client EKU is refused") {
	auto spec = CertificateSpec::ForNode("n1");
	spec.extended_key_usage = "serverAuth";
	Pair(spec).ExpectRefused({"extended key usage clientAuth is missing", "EKU:[serverAuth]", "fix:"});
}

TEST_CASE("a certificate without server EKU is refused") {
	auto spec = CertificateSpec::ForNode("n1");
	spec.extended_key_usage = "clientAuth";
	Pair(spec).ExpectRefused({"extended key usage serverAuth is missing", "EKU:[clientAuth]", "fix:"});
}

TEST_CASE("a certificate of another CA is refused") {
	TestAuthority other("other ca");
	Pair(CertificateSpec::ForNode("n1"), other)
	    .ExpectRefused({"chain check failed", "unable to get local issuer certificate",
		                "this node trusts 'CN=cluster ca'", "issuer='CN=other ca'", "fix:"});
}

TEST_CASE("an expired certificate is refused") {
	auto spec = CertificateSpec::ForNode("n1");
	spec.valid_until_s = -60;
	Pair pair(spec);
	pair.bad.config.check_own_certificate = true; // dates alone do not stop a node from starting
	pair.ExpectRefused({"chain check failed: certificate has expired", "valid from", "fix:"});
	CHECK(HasAll(pair.bad.Get().GetTransportStatus().certificate_alarm, {"own certificate", "expired"}));
}

TEST_CASE("a certificate that is not valid yet is refused") {
	auto spec = CertificateSpec::ForNode("n1");
	spec.valid_from_s = 1800;
	Pair(spec).ExpectRefused({"certificate is not yet valid", "fix:"});
}

TEST_CASE("a wildcard or a longer name is not the node's name") {
	CertificateSpec spec;
	spec.alternative_names = {"DNS:*", "URI:*", "DNS:n1.example", "URI:n10"};
	Pair(spec).ExpectRefused({"SAN DNS:n1 is missing", "SAN URI:n1 is missing", "DNS:[*, n1.example]", "URI:[*, n10]"});
}

// Goal: a node with another node's valid certificate is not taken for the dialed one. Method: n0 has an entry for n9
// that leads to n1.
TEST_CASE("a listener with another node's name is refused") {
	TemporaryFolder folder;
	TestAuthority authority("cluster ca");
	TestNode n0("n0", authority.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0")));
	TestNode n1("n1", authority.IssueFiles(folder, "n1", CertificateSpec::ForNode("n1")));
	n0.Start();
	n1.Start();
	auto address = n1.Address();
	address.node_id = "n9";
	n0.Get().SetPeers({address});
	std::vector<std::string> words = {"does not prove node 'n9'", "SAN DNS:n9 is missing", "DNS:[n1]", "URI:[n1]"};
	CHECK_MESSAGE(WaitUntil([&] { return HasAll(n0.Peer("n9").last_error, words); }), n0.Peer("n9").last_error);
	CHECK_MESSAGE(WaitUntil([&] { return n1.HasRefusal(words); }), n1.RefusalText());
}

// Goal: a hello that the upper layer does not accept ends the session in words on both sides, on both dials.
TEST_CASE("a hello mismatch is told on both sides") {
	Pair pair(CertificateSpec::ForNode("n1"));
	pair.bad.hello = "cluster-2";
	pair.good.Start();
	pair.bad.Start();
	Introduce({&pair.good, &pair.bad});
	auto ok = WaitUntil([&] {
		return HasAll(pair.good.Peer("n1").last_error, {"expected cluster-", "sent cluster-"}) &&
		       HasAll(pair.bad.Peer("n0").last_error, {"expected cluster-", "sent cluster-"}) &&
		       pair.good.HasRefusal({"hello of 'n1' refused", "expected cluster-1, 'n1' sent cluster-2"}) &&
		       pair.bad.HasRefusal({"hello of 'n0' refused", "expected cluster-2, 'n0' sent cluster-1"});
	});
	CHECK_MESSAGE(ok, pair.good.Peer("n1").last_error << "\n" << pair.good.RefusalText() << pair.bad.RefusalText());
}

// Goal: an own certificate that no peer would accept stops the start, with the same words.
TEST_CASE("start refuses an unfit own certificate") {
	Pair pair(CertificateSpec {});
	pair.bad.config.check_own_certificate = true;
	auto status = pair.bad.TryStart();
	CHECK(status.Code() == ErrorCode::Unauthorized);
	CHECK_MESSAGE(HasAll(status.Message(), {"own certificate", "n1.crt", "SAN DNS:n1 is missing"}), status.Message());
}

TEST_CASE("start names the unreadable, mismatched and damaged TLS file") {
	TemporaryFolder folder;
	TestAuthority authority("cluster ca");
	auto good = authority.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0"));
	auto other = authority.IssueFiles(folder, "n1", CertificateSpec::ForNode("n1"));

	auto expect = [&](const TlsFiles &files, const std::vector<std::string> &words) {
		TestNode node("n0", files);
		auto status = node.TryStart();
		CHECK(status.Code() == ErrorCode::Unauthorized);
		CHECK_MESSAGE(HasAll(status.Message(), words), status.Message());
		CHECK(status.Message().find("PRIVATE KEY-----") == std::string::npos);
	};
	expect({folder.File("none.crt"), good.key_file, good.ca_file}, {"cannot open certificate file", "none.crt"});
	expect({good.cert_file, "", good.ca_file}, {"no private key file is configured"});
	expect({good.cert_file, other.key_file, good.ca_file}, {"does not belong to certificate", "n1.key"});
	expect({good.cert_file, good.cert_file, good.ca_file}, {"holds no readable PEM private key"});
	WriteFile(folder.File("half.crt"), ReadFile(good.cert_file).substr(0, 200));
	expect({folder.File("half.crt"), good.key_file, good.ca_file}, {"half.crt", "half-written"});
	WriteFile(folder.File("empty.ca"), "");
	expect({good.cert_file, good.key_file, folder.File("empty.ca")}, {"empty.ca", "no PEM certificate"});
}

// Goal: the facts and the verdict that a doctor command shows come without a port.
TEST_CASE("certificate facts and the doctor's verdict") {
	TemporaryFolder folder;
	TestAuthority authority("cluster ca");
	auto spec = CertificateSpec::ForNode("n0");
	spec.alternative_names.push_back("IP:10.1.2.3");
	auto files = authority.IssueFiles(folder, "n0", spec);
	auto read = ReadCertificate(files.cert_file);
	REQUIRE(read.IsOk());
	auto &facts = read.Value();
	CHECK(facts.common_name == "node n0");
	CHECK(facts.issuer == "CN=cluster ca");
	CHECK(facts.dns_names == std::vector<std::string> {"n0"});
	CHECK(facts.uri_names == std::vector<std::string> {"n0"});
	CHECK(facts.ip_names == std::vector<std::string> {"10.1.2.3"});
	CHECK(facts.extended_key_usages == std::vector<std::string> {"serverAuth", "clientAuth"});
	CHECK(facts.not_after_unix - facts.not_before_unix == 7200);
	CHECK(facts.not_after.size() == std::string("2026-01-01T00:00:00Z").size());
	CHECK(facts.sha256.size() == 64);
	CHECK(!facts.is_ca);
	CHECK(ReadCertificate(files.ca_file).Value().is_ca);

	CHECK(CheckTlsFiles(files, "n0").Value().sha256 == facts.sha256);
	auto wrong = CheckTlsFiles(files, "n5");
	CHECK(wrong.GetStatus().Code() == ErrorCode::Unauthorized);
	CHECK(HasAll(wrong.GetStatus().Message(), {"does not prove node 'n5'", "DNS:[n0]"}));
	CHECK(ReadCertificate(folder.File("absent")).GetStatus().Code() == ErrorCode::NotFound);
	CHECK(ReadCertificate(files.key_file).GetStatus().Code() == ErrorCode::InvalidArgument);
}

// Goal: a SAN with an embedded NUL does not pass for the name before it, and is shown harmlessly.
TEST_CASE("an embedded NUL in a SAN proves nothing") {
	PresentedCertificate presented;
	presented.is_present = true;
	presented.facts.dns_names = {std::string("n1\0.evil", 8)};
	presented.facts.uri_names = {std::string("n1\0.evil", 8)};
	presented.facts.extended_key_usages = {"serverAuth", "clientAuth"};
	auto status = CheckPeerIdentity(presented, "n1");
	CHECK(!status.IsOk());
	CHECK(HasAll(status.Message(), {"n1\\x00.evil"}));
	presented.facts.dns_names.push_back("n1");
	presented.facts.uri_names.push_back("n1");
	CHECK(CheckPeerIdentity(presented, "n1").IsOk());
	presented.chain_errors = {"certificate has expired"};
	CHECK(!CheckPeerIdentity(presented, "n1").IsOk());
}

} // namespace transport
} // namespace quack
