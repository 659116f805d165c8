#include <atomic>
#include <filesystem>
#include <thread>

#include "test_client.hpp"
#include "test_node.hpp"

namespace quack {
namespace transport {

namespace {

//! A folder mounted as Kubernetes does it: files are links through "current", which is swapped atomically.
class LinkedFiles {
public:
	explicit LinkedFiles(const TemporaryFolder &folder_p) : folder(folder_p) {
		for (auto name : {"tls.crt", "tls.key", "ca.crt"}) {
			std::filesystem::create_symlink("current/" + std::string(name), folder.File(name));
		}
		files = {folder.File("tls.crt"), folder.File("tls.key"), folder.File("ca.crt")};
	}
	void Install(const PemPair &pair, const std::string &ca) {
		auto version = "version" + std::to_string(++count);
		std::filesystem::create_directory(folder.File(version));
		WriteFile(folder.File(version + "/tls.crt"), pair.certificate);
		WriteFile(folder.File(version + "/tls.key"), pair.key);
		WriteFile(folder.File(version + "/ca.crt"), ca);
		std::filesystem::create_symlink(version, folder.File("next"));
		std::filesystem::rename(folder.File("next"), folder.File("current"));
	}
	TlsFiles files;

private:
	const TemporaryFolder &folder;
	int count = 0;
};

std::string FingerprintNow(TestNode &node) {
	TestClient client(node.Get().ListenPort());
	return client.StartTls("") ? client.ServerFingerprint() : "";
}

} // namespace

// Goal: a new certificate is taken without a restart and without losing a message. Method: links are swapped three
// times while messages flow and new clients come; new handshakes must show the new certificate.
TEST_CASE("certificates are reloaded under traffic") {
	TemporaryFolder folder;
	TemporaryFolder linked_folder;
	TestAuthority authority("cluster ca");
	LinkedFiles linked(linked_folder);
	linked.Install(authority.Issue(CertificateSpec::ForNode("n0")), authority.Pem());
	TestNode n0("n0", linked.files);
	TestNode n1("n1", authority.IssueFiles(folder, "n1", CertificateSpec::ForNode("n1")));
	n0.Start();
	n1.Start();
	Connect({&n0, &n1});
	std::atomic<bool> is_over {false};
	std::atomic<size_t> sent {0};
	std::thread sender([&] {
		while (!is_over) {
			if (n1.MessageCount("n0") + 100 > sent && n0.Get().Send("n1", std::to_string(sent)).IsOk()) {
				sent++;
			}
		}
	});
	auto shown = FingerprintNow(n0);
	for (uint64_t round = 1; round <= 3; round++) {
		auto pair = authority.Issue(CertificateSpec::ForNode("n0"));
		linked.Install(pair, authority.Pem());
		auto expected = ReadCertificate(linked.files.cert_file).Value().sha256;
		CHECK(expected != shown);
		shown = FingerprintNow(n0); // the accept itself looks at the files
		CHECK(shown == expected);
		CHECK(n0.Get().GetTransportStatus().certificate.sha256 == expected);
		CHECK(n0.Get().GetTransportStatus().certificate_reloads == round);
	}
	is_over = true;
	sender.join();
	CHECK(WaitUntil([&] { return n1.MessageCount("n0") == sent; }));
	CHECK(n0.DownCount("n1") == 0);
	CHECK(n0.Get().GetTransportStatus().certificate_alarm.empty());
}

// Goal: a bad new set keeps the old identity, raises the alarm with the reason, and a good set clears it. Cases: key of
// another certificate, half-written file, wrong name, expired, file gone.
TEST_CASE("a bad new certificate keeps the old one") {
	TemporaryFolder folder;
	TestAuthority authority("cluster ca");
	TestNode node("n0", authority.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0")));
	node.Start();
	auto files = node.config.tls;
	auto good_certificate = ReadFile(files.cert_file);
	auto good_key = ReadFile(files.key_file);
	auto fingerprint = FingerprintNow(node);
	auto alarm = [&] {
		return node.Get().GetTransportStatus().certificate_alarm;
	};

	auto expect_alarm = [&](const PemPair &pair, const std::vector<std::string> &words) {
		WriteFile(files.cert_file, pair.certificate);
		WriteFile(files.key_file, pair.key);
		CHECK(FingerprintNow(node) == fingerprint);
		CHECK_MESSAGE(WaitUntil([&] { return HasAll(alarm(), words); }), alarm());
		WriteFile(files.cert_file, good_certificate);
		WriteFile(files.key_file, good_key);
		CHECK(FingerprintNow(node) == fingerprint);
		CHECK_MESSAGE(WaitUntil([&] { return alarm().empty(); }), alarm());
	};
	auto other = authority.Issue(CertificateSpec::ForNode("n0"));
	expect_alarm({good_certificate, other.key}, {"old identity stays", "does not belong"});
	expect_alarm({other.certificate.substr(0, 300), other.key}, {"old identity stays", "half-written"});
	expect_alarm(authority.Issue(CertificateSpec::ForNode("n5")), {"old identity stays", "SAN DNS:n0 is missing"});
	auto expired = CertificateSpec::ForNode("n0");
	expired.valid_until_s = -10;
	expect_alarm(authority.Issue(expired), {"old identity stays", "certificate has expired"});
	TestAuthority stranger("other ca");
	expect_alarm(stranger.Issue(CertificateSpec::ForNode("n0")), {"old identity stays", "chain check failed"});
	std::filesystem::remove(files.key_file);
	CHECK_MESSAGE(WaitUntil([&] { return HasAll(alarm(), {"old identity stays", "cannot open private key"}); }),
	              alarm());
	WriteFile(files.key_file, good_key);
	CHECK(WaitUntil([&] { return alarm().empty(); }));
	CHECK(FingerprintNow(node) == fingerprint);
}

// Goal: a cluster whose certificates expired comes up as soon as new ones are put in place, without a restart.
TEST_CASE("an expired cluster heals when new certificates come") {
	TemporaryFolder folder;
	TestAuthority authority("cluster ca");
	auto expired = [&](const std::string &name) {
		auto spec = CertificateSpec::ForNode(name);
		spec.valid_until_s = -10;
		return authority.IssueFiles(folder, name, spec);
	};
	TestNode n0("n0", expired("n0"));
	TestNode n1("n1", expired("n1"));
	n0.Start();
	n1.Start();
	Introduce({&n0, &n1});
	REQUIRE(WaitUntil([&] { return HasAll(n0.Peer("n1").last_error, {"certificate has expired"}); }));
	authority.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0"));
	authority.IssueFiles(folder, "n1", CertificateSpec::ForNode("n1"));
	CHECK_MESSAGE(WaitUntil([&] { return n0.IsConnected("n1") && n1.IsConnected("n0"); }), n0.Peer("n1").last_error);
	CHECK(n0.Get().GetTransportStatus().certificate_alarm.empty());
}

// Goal: the CA itself is replaced with an overlap: first both CAs are trusted everywhere, then leaves change one by
// one, then the old CA goes. Sessions are cut after each step and must come back.
TEST_CASE("the CA is rotated with an overlap") {
	TemporaryFolder folder;
	TestAuthority old_ca("old ca");
	TestAuthority new_ca("new ca");
	TestNode n0("n0", old_ca.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0")));
	TestNode n1("n1", old_ca.IssueFiles(folder, "n1", CertificateSpec::ForNode("n1")));
	n0.Start();
	n1.Start();
	Connect({&n0, &n1});
	auto reconnect = [&](uint64_t reloads0, uint64_t reloads1) {
		REQUIRE(WaitUntil([&] {
			return n0.Get().GetTransportStatus().certificate_reloads == reloads0 &&
			       n1.Get().GetTransportStatus().certificate_reloads == reloads1;
		}));
		n0.Get().SetPeers({});
		n1.Get().SetPeers({});
		Connect({&n0, &n1});
	};
	auto both = old_ca.Pem() + new_ca.Pem();
	WriteFile(n0.config.tls.ca_file, both);
	WriteFile(n1.config.tls.ca_file, both);
	reconnect(1, 1);
	new_ca.IssueFiles(folder, "n0", CertificateSpec::ForNode("n0"));
	WriteFile(n0.config.tls.ca_file, both);
	REQUIRE(WaitUntil([&] { return n0.Get().GetTransportStatus().certificate.issuer == "CN=new ca"; }));
	n0.Get().SetPeers({});
	n1.Get().SetPeers({});
	Connect({&n0, &n1});
	new_ca.IssueFiles(folder, "n1", CertificateSpec::ForNode("n1"));
	WriteFile(n0.config.tls.ca_file, new_ca.Pem());
	REQUIRE(WaitUntil([&] { return n1.Get().GetTransportStatus().certificate.issuer == "CN=new ca"; }));
	n0.Get().SetPeers({});
	n1.Get().SetPeers({});
	Connect({&n0, &n1});
	CHECK(n0.CallAndWait("n1", "echo", "rotated").Value() == "rotated");
}

} // namespace transport
} // namespace quack
