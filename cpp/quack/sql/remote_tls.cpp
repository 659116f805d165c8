#include "quack/sql/remote_tls.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace quack {
namespace sql {

static std::string LastSslError() {
	auto code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : nullptr;
	std::string text = reason ? reason : "no reason given by OpenSSL";
	ERR_clear_error();
	return text;
}

static bool IsAddress(const std::string &host) {
	unsigned char buffer[16];
	return inet_pton(AF_INET, host.c_str(), buffer) == 1 || inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

static std::string NameText(X509_NAME *name) {
	char buffer[256] = {0};
	return name ? std::string(X509_NAME_oneline(name, buffer, sizeof(buffer) - 1)) : std::string("?");
}

static std::string TimeText(const ASN1_TIME *time) {
	BIO *bio = BIO_new(BIO_s_mem());
	std::string text = "?";
	if (bio && ASN1_TIME_print(bio, time)) {
		char *data = nullptr;
		auto size = BIO_get_mem_data(bio, &data);
		text.assign(data, static_cast<size_t>(size));
	}
	BIO_free(bio);
	return text;
}

//! The subject alternative names as "DNS:a, URI:b, IP:c".
static std::string SanText(X509 *cert, std::vector<std::string> *uris) {
	std::string text;
	auto names = static_cast<GENERAL_NAMES *>(X509_get_ext_d2i(cert, NID_subject_alt_name, nullptr, nullptr));
	for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
		auto name = sk_GENERAL_NAME_value(names, i);
		std::string item;
		if (name->type == GEN_DNS || name->type == GEN_URI) {
			auto ia5 = name->type == GEN_DNS ? name->d.dNSName : name->d.uniformResourceIdentifier;
			std::string value(reinterpret_cast<const char *>(ASN1_STRING_get0_data(ia5)),
			                  static_cast<size_t>(ASN1_STRING_length(ia5)));
			item = (name->type == GEN_DNS ? "DNS:" : "URI:") + value;
			if (name->type == GEN_URI && uris) {
				uris->push_back(value);
			}
		} else if (name->type == GEN_IPADD) {
			char shown[INET6_ADDRSTRLEN] = {0};
			auto size = ASN1_STRING_length(name->d.iPAddress);
			inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress), shown, sizeof(shown));
			item = std::string("IP:") + shown;
		}
		if (!item.empty()) {
			text += (text.empty() ? "" : ", ") + item;
		}
	}
	GENERAL_NAMES_free(names);
	return text.empty() ? "none" : text;
}

//! What the certificate that failed verification said; the session itself drops it. Handshakes run on one thread.
static thread_local std::string refused_certificate;

static int NoteRefusedCertificate(int verified, X509_STORE_CTX *store) {
	X509 *cert = verified ? nullptr : X509_STORE_CTX_get0_cert(store);
	if (cert) {
		refused_certificate = "; the node's certificate has " + SanText(cert, nullptr) + ", issuer " +
		                      NameText(X509_get_issuer_name(cert)) + ", valid until " +
		                      TimeText(X509_get0_notAfter(cert));
	}
	return verified;
}

Result<std::unique_ptr<TlsClientContext>> TlsClientContext::Create(const RemoteOptions &options) {
	std::unique_ptr<TlsClientContext> result(new TlsClientContext());
	result->ca_file = options.client_ca_file;
	result->cert_file = options.cert_file;
	ERR_clear_error();
	result->context = SSL_CTX_new(TLS_client_method());
	auto ctx = result->context;
	if (!ctx) {
		return Status(ErrorCode::Internal, "cannot make a TLS context: " + LastSslError());
	}
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NoteRefusedCertificate);
	static const unsigned char alpn[] = "\x08http/1.1";
	SSL_CTX_set_alpn_protos(ctx, alpn, sizeof(alpn) - 1);
	bool ca_ok = options.client_ca_file.empty()
	                 ? SSL_CTX_set_default_verify_paths(ctx) == 1
	                 : SSL_CTX_load_verify_locations(ctx, options.client_ca_file.c_str(), nullptr) == 1;
	if (!ca_ok) {
		return Status(ErrorCode::InvalidArgument, "client_ca_file \"" + options.client_ca_file +
		                                              "\" cannot be read as PEM certificates: " + LastSslError());
	}
	if (options.cert_file.empty()) {
		return result;
	}
	if (SSL_CTX_use_certificate_chain_file(ctx, options.cert_file.c_str()) != 1) {
		return Status(ErrorCode::InvalidArgument,
		              "cert_file \"" + options.cert_file + "\" cannot be read as a PEM certificate: " + LastSslError());
	}
	if (SSL_CTX_use_PrivateKey_file(ctx, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_check_private_key(ctx) != 1) {
		return Status(ErrorCode::InvalidArgument, "key_file \"" + options.key_file + "\" is not the PEM key of \"" +
		                                              options.cert_file + "\": " + LastSslError());
	}
	return result;
}

TlsClientContext::~TlsClientContext() {
	SSL_CTX_free(context);
}

SSL *TlsClientContext::NewSession(const std::string &host) const {
	SSL *ssl = SSL_new(context);
	if (ssl && !IsAddress(host)) {
		SSL_set_tlsext_host_name(ssl, host.c_str());
	}
	return ssl;
}

static bool CertificateNames(X509 *cert, const std::vector<std::string> &uris, const std::string &name) {
	if (IsAddress(name)) {
		return X509_check_ip_asc(cert, name.c_str(), 0) == 1;
	}
	for (auto &uri : uris) {
		if (uri == name) {
			return true;
		}
	}
	return X509_check_host(cert, name.c_str(), name.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, nullptr) == 1;
}

Status TlsClientContext::CheckPeer(SSL *ssl, const std::string &host, const std::vector<std::string> &accepted) const {
	X509 *cert = SSL_get1_peer_certificate(ssl);
	if (!cert) {
		return Status(ErrorCode::Unauthorized, "node " + host + " presented no certificate");
	}
	std::vector<std::string> uris;
	auto seen = SanText(cert, &uris);
	bool named = false;
	std::string expected;
	for (auto &name : accepted) {
		named = named || CertificateNames(cert, uris, name);
		expected += (expected.empty() ? "" : ", ") + name;
	}
	auto issuer = NameText(X509_get_issuer_name(cert));
	X509_free(cert);
	if (named) {
		return Status::Ok();
	}
	return Status(ErrorCode::Unauthorized,
	              "the certificate of node " + host + " does not name it: expected " + expected +
	                  ", the certificate has " + seen + " (issuer " + issuer +
	                  "). Fix: give server_name '<node id>' in ATTACH, or issue the node a certificate with that name");
}

Status TlsClientContext::ExplainHandshakeFailure(SSL *ssl, const std::string &endpoint) const {
	auto verify = SSL_get_verify_result(ssl);
	auto code = ERR_peek_error();
	bool ended = ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
	auto reason = LastSslError();
	if (verify == X509_V_OK && ended) {
		// A refusal comes as an alert; whoever just leaves is stopping, or was killed.
		return Status(ErrorCode::Unavailable,
		              "node " + endpoint + " closed the connection during the TLS handshake: " + reason);
	}
	if (verify == X509_V_OK) {
		auto hint = cert_file.empty() ? "no client certificate was given (cert_file, key_file)"
		                              : "the client certificate was " + cert_file;
		return Status(ErrorCode::Unauthorized,
		              "TLS handshake with node " + endpoint + " failed: " + reason + "; " + hint);
	}
	auto seen = std::move(refused_certificate);
	refused_certificate.clear();
	auto trusted = ca_file.empty() ? std::string("the system's CAs (give client_ca_file)") : ca_file;
	std::string fix = verify == X509_V_ERR_CERT_HAS_EXPIRED
	                      ? "renew the node's certificate"
	                      : "give the CA that signed the cluster's certificates as client_ca_file";
	return Status(ErrorCode::Unauthorized, "the certificate of node " + endpoint +
	                                           " is not trusted: " + X509_verify_cert_error_string(verify) +
	                                           "; expected one signed by " + trusted + seen + ". Fix: " + fix);
}

} // namespace sql
} // namespace quack
