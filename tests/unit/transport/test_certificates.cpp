#include "test_certificates.hpp"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "quack/common/check.hpp"

namespace quack {
namespace transport {

namespace {

std::string BioText(BIO *bio) {
	char *data = nullptr;
	auto size = BIO_get_mem_data(bio, &data);
	std::string text(data, static_cast<size_t>(size));
	BIO_free(bio);
	return text;
}

std::string CertificatePem(X509 *certificate) {
	auto bio = BIO_new(BIO_s_mem());
	PEM_write_bio_X509(bio, certificate);
	return BioText(bio);
}

void AddExtension(X509 *certificate, X509 *issuer, int nid, const std::string &value) {
	X509V3_CTX context;
	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
	auto extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
	QUACK_CHECK(extension, value.c_str());
	X509_add_ext(certificate, extension, -1);
	X509_EXTENSION_free(extension);
}

std::shared_ptr<X509> NewCertificate(const std::string &name, EVP_PKEY *key, long from_s, long until_s) {
	static std::atomic<long> serial {1};
	auto certificate = std::shared_ptr<X509>(X509_new(), X509_free);
	X509_set_version(certificate.get(), 2);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
	X509_gmtime_adj(X509_getm_notBefore(certificate.get()), from_s);
	X509_gmtime_adj(X509_getm_notAfter(certificate.get()), until_s);
	X509_set_pubkey(certificate.get(), key);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
	                           reinterpret_cast<const unsigned char *>(name.c_str()), -1, -1, 0);
	return certificate;
}

} // namespace

TemporaryFolder::TemporaryFolder() {
	auto pattern = (std::filesystem::temp_directory_path() / "quack-transport-XXXXXX").string();
	QUACK_CHECK(mkdtemp(&pattern[0]), "a temporary folder can be made");
	path = pattern;
}

TemporaryFolder::~TemporaryFolder() {
	std::error_code ignored;
	std::filesystem::remove_all(path, ignored);
}

void WriteFile(const std::string &path, const std::string &bytes) {
	std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string ReadFile(const std::string &path) {
	std::ostringstream text;
	text << std::ifstream(path, std::ios::binary).rdbuf();
	return text.str();
}

CertificateSpec CertificateSpec::ForNode(const std::string &node_id) {
	CertificateSpec spec;
	spec.common_name = "node " + node_id;
	spec.alternative_names = {"DNS:" + node_id, "URI:" + node_id};
	return spec;
}

TestAuthority::TestAuthority(const std::string &name) : key(EVP_EC_gen("P-256"), EVP_PKEY_free) {
	certificate = NewCertificate(name, key.get(), -7200, 7200);
	X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
	AddExtension(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
	AddExtension(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
	AddExtension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash");
	X509_sign(certificate.get(), key.get(), EVP_sha256());
	pem = CertificatePem(certificate.get());
}

PemPair TestAuthority::Issue(const CertificateSpec &spec) const {
	auto leaf_key = std::shared_ptr<EVP_PKEY>(EVP_EC_gen("P-256"), EVP_PKEY_free);
	auto leaf = NewCertificate(spec.common_name, leaf_key.get(), spec.valid_from_s, spec.valid_until_s);
	X509_set_issuer_name(leaf.get(), X509_get_subject_name(certificate.get()));
	AddExtension(leaf.get(), certificate.get(), NID_basic_constraints, "critical,CA:FALSE");
	AddExtension(leaf.get(), certificate.get(), NID_authority_key_identifier, "keyid");
	std::string names;
	for (auto &name : spec.alternative_names) {
		names += (names.empty() ? "" : ",") + name;
	}
	if (!names.empty()) {
		AddExtension(leaf.get(), certificate.get(), NID_subject_alt_name, names);
	}
	if (!spec.extended_key_usage.empty()) {
		AddExtension(leaf.get(), certificate.get(), NID_ext_key_usage, spec.extended_key_usage);
	}
	X509_sign(leaf.get(), key.get(), EVP_sha256());
	auto bio = BIO_new(BIO_s_mem());
	PEM_write_bio_PrivateKey(bio, leaf_key.get(), nullptr, nullptr, 0, nullptr, nullptr);
	return {CertificatePem(leaf.get()), BioText(bio)};
}

TlsFiles TestAuthority::IssueFiles(const TemporaryFolder &folder, const std::string &name,
                                   const CertificateSpec &spec) const {
	TlsFiles files {folder.File(name + ".crt"), folder.File(name + ".key"), folder.File(name + ".ca")};
	auto pair = Issue(spec);
	WriteFile(files.cert_file, pair.certificate);
	WriteFile(files.key_file, pair.key);
	WriteFile(files.ca_file, pem);
	return files;
}

} // namespace transport
} // namespace quack
