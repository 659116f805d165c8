//! Certificate authorities and certificates for tests, made with OpenSSL on the spot; and a temporary folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "quack/transport/transport.hpp"

namespace quack {
namespace transport {

//! A folder that is removed with all its files.
class TemporaryFolder {
public:
	TemporaryFolder();
	~TemporaryFolder();
	std::string File(const std::string &name) const {
		return path + "/" + name;
	}
	const std::string &Path() const {
		return path;
	}

private:
	std::string path;
};

void WriteFile(const std::string &path, const std::string &bytes);
std::string ReadFile(const std::string &path);

//! What goes into a certificate. The default is what a peer needs, apart from the names.
struct CertificateSpec {
	std::string common_name = "any";
	std::vector<std::string> alternative_names; //! as in OpenSSL's configuration: "DNS:n0", "URI:n0", "IP:127.0.0.1"
	std::string extended_key_usage = "serverAuth,clientAuth";
	long valid_from_s = -3600; //! relative to now
	long valid_until_s = 3600;

	//! A good certificate of a node.
	static CertificateSpec ForNode(const std::string &node_id);
};

struct PemPair {
	std::string certificate;
	std::string key;
};

class TestAuthority {
public:
	explicit TestAuthority(const std::string &name);
	const std::string &Pem() const {
		return pem;
	}
	PemPair Issue(const CertificateSpec &spec) const;
	//! Writes <name>.crt, <name>.key and <name>.ca into the folder.
	TlsFiles IssueFiles(const TemporaryFolder &folder, const std::string &name, const CertificateSpec &spec) const;

private:
	std::shared_ptr<EVP_PKEY> key;
	std::shared_ptr<X509> certificate;
	std::string pem;
};

} // namespace transport
} // namespace quack
