#include "quack/transport/certificate.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "quack/transport/openssl_handle.hpp"

namespace quack {
namespace transport {

namespace {

constexpr size_t SMALL_FILE_BYTES_MAX = 1024 * 1024;

std::string NameLine(const X509_NAME *name) {
	auto bio = BioPtr(BIO_new(BIO_s_mem()));
	X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_ONELINE & ~XN_FLAG_SPC_EQ);
	char *data = nullptr;
	auto size = BIO_get_mem_data(bio.get(), &data);
	return std::string(data, size > 0 ? static_cast<size_t>(size) : 0);
}

std::string CommonName(const X509_NAME *name) {
	auto index = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
	if (index < 0) {
		return "";
	}
	auto text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, index));
	return std::string(reinterpret_cast<const char *>(ASN1_STRING_get0_data(text)),
	                   static_cast<size_t>(ASN1_STRING_length(text)));
}

//! The bytes as they are: an embedded NUL stays in, so that a comparison with a node name fails.
std::string RawText(const ASN1_STRING *text) {
	return std::string(reinterpret_cast<const char *>(ASN1_STRING_get0_data(text)),
	                   static_cast<size_t>(ASN1_STRING_length(text)));
}

std::string IpText(const ASN1_OCTET_STRING *address) {
	char text[INET6_ADDRSTRLEN] = "";
	auto size = ASN1_STRING_length(address);
	auto family = size == 4 ? AF_INET : AF_INET6;
	if ((size != 4 && size != 16) || !inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof(text))) {
		return "(malformed)";
	}
	return text;
}

void ReadAlternativeNames(X509 *certificate, CertificateFacts &facts) {
	auto names = static_cast<GENERAL_NAMES *>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
	if (!names) {
		return;
	}
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		auto name = sk_GENERAL_NAME_value(names, i);
		if (name->type == GEN_DNS) {
			facts.dns_names.push_back(RawText(name->d.dNSName));
		} else if (name->type == GEN_URI) {
			facts.uri_names.push_back(RawText(name->d.uniformResourceIdentifier));
		} else if (name->type == GEN_IPADD) {
			facts.ip_names.push_back(IpText(name->d.iPAddress));
		}
	}
	GENERAL_NAMES_free(names);
}

void ReadExtendedKeyUsages(X509 *certificate, CertificateFacts &facts) {
	auto usages = static_cast<EXTENDED_KEY_USAGE *>(X509_get_ext_d2i(certificate, NID_ext_key_usage, nullptr, nullptr));
	if (!usages) {
		return;
	}
	for (int i = 0; i < sk_ASN1_OBJECT_num(usages); i++) {
		auto object = sk_ASN1_OBJECT_value(usages, i);
		auto nid = OBJ_obj2nid(object);
		char text[80];
		if (nid != NID_undef) {
			facts.extended_key_usages.push_back(OBJ_nid2sn(nid));
		} else if (OBJ_obj2txt(text, sizeof(text), object, 1) > 0) {
			facts.extended_key_usages.push_back(text);
		}
	}
	EXTENDED_KEY_USAGE_free(usages);
}

int64_t UnixTime(const ASN1_TIME *time, std::string &text) {
	tm parts {};
	if (!ASN1_TIME_to_tm(time, &parts)) {
		text = "(malformed)";
		return 0;
	}
	char buffer[32];
	std::strftime(buffer, sizeof(buffer), "%Y-%m-%dT%H:%M:%SZ", &parts);
	text = buffer;
	return static_cast<int64_t>(timegm(&parts));
}

std::string Fingerprint(const X509 *certificate) {
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int size = 0;
	if (!X509_digest(certificate, EVP_sha256(), digest, &size)) {
		return "";
	}
	std::string hex;
	for (unsigned int i = 0; i < size; i++) {
		char byte[3];
		std::snprintf(byte, sizeof(byte), "%02x", digest[i]);
		hex += byte;
	}
	return hex;
}

std::string Joined(const std::vector<std::string> &names) {
	std::string out = "[";
	for (size_t i = 0; i < names.size(); i++) {
		out += (i ? ", " : "") + Printable(names[i], 256);
	}
	return out + "]";
}

} // namespace

Result<std::string> ReadSmallFile(const std::string &path, const char *what) {
	auto file = std::fopen(path.c_str(), "rb");
	if (!file) {
		auto code = errno == ENOENT || errno == ENOTDIR ? ErrorCode::NotFound : ErrorCode::IoError;
		return Status(code, std::string("cannot open ") + what + " '" + path + "': " + std::strerror(errno) +
		                        "; check the path and that this process may read it");
	}
	std::string bytes(SMALL_FILE_BYTES_MAX + 1, '\0');
	auto size = std::fread(&bytes[0], 1, bytes.size(), file);
	auto failed = std::ferror(file) != 0;
	std::fclose(file);
	if (failed) {
		return Status(ErrorCode::IoError, std::string("cannot read ") + what + " '" + path + "'");
	}
	if (size > SMALL_FILE_BYTES_MAX) {
		return Status(ErrorCode::InvalidArgument,
		              std::string(what) + " '" + path + "' is larger than 1 MiB; expected a PEM file");
	}
	bytes.resize(size);
	return bytes;
}

CertificateFacts FactsOf(x509_st *certificate) {
	CertificateFacts facts;
	facts.subject = NameLine(X509_get_subject_name(certificate));
	facts.common_name = CommonName(X509_get_subject_name(certificate));
	facts.issuer = NameLine(X509_get_issuer_name(certificate));
	ReadAlternativeNames(certificate, facts);
	ReadExtendedKeyUsages(certificate, facts);
	facts.not_before_unix = UnixTime(X509_get0_notBefore(certificate), facts.not_before);
	facts.not_after_unix = UnixTime(X509_get0_notAfter(certificate), facts.not_after);
	facts.sha256 = Fingerprint(certificate);
	facts.is_ca = X509_check_ca(certificate) == 1;
	return facts;
}

Result<CertificateFacts> ReadCertificate(const std::string &path) {
	auto bytes = ReadSmallFile(path, "certificate file");
	if (!bytes.IsOk()) {
		return bytes.GetStatus();
	}
	auto bio = BioPtr(BIO_new_mem_buf(bytes.Value().data(), static_cast<int>(bytes.Value().size())));
	auto certificate = X509Ptr(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
	if (!certificate) {
		return Status(ErrorCode::InvalidArgument, "certificate file '" + path +
		                                              "' holds no readable PEM certificate: " + TakeOpenSslErrors() +
		                                              "; expected a line -----BEGIN CERTIFICATE-----");
	}
	return FactsOf(certificate.get());
}

std::string DescribeCertificate(const CertificateFacts &facts) {
	return "DNS:" + Joined(facts.dns_names) + " URI:" + Joined(facts.uri_names) + " IP:" + Joined(facts.ip_names) +
	       " CN='" + Printable(facts.common_name, 256) + "' issuer='" + Printable(facts.issuer, 512) + "' valid from " +
	       facts.not_before + " to " + facts.not_after + " EKU:" + Joined(facts.extended_key_usages) +
	       " sha256=" + facts.sha256.substr(0, 16);
}

std::string Printable(ByteView bytes, size_t size_max) {
	std::string out;
	for (auto c : bytes) {
		if (out.size() >= size_max) {
			return out + "...";
		}
		auto byte = static_cast<unsigned char>(c);
		if (byte >= 0x20 && byte < 0x7f) {
			out.push_back(c);
		} else {
			char escaped[5];
			std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
			out += escaped;
		}
	}
	return out;
}

} // namespace transport
} // namespace quack
