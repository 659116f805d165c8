//! What a certificate says, without any OpenSSL type: for refusals, status and a doctor command. Pure reading; decides
//! nothing (peer_identity.hpp does). Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

struct x509_st;

namespace quack {
namespace transport {

struct CertificateFacts {
	std::string subject;     //! one line, e.g. "CN=n0, O=example"
	std::string common_name; //! shown, never trusted
	std::string issuer;      //! one line
	std::vector<std::string> dns_names;
	std::vector<std::string> uri_names;
	std::vector<std::string> ip_names;
	std::vector<std::string> extended_key_usages; //! short names: serverAuth, clientAuth, …
	int64_t not_before_unix = 0;                  //! seconds since 1970, UTC
	int64_t not_after_unix = 0;
	std::string not_before; //! RFC 3339, UTC
	std::string not_after;
	std::string sha256; //! of the DER, 64 lower-case hex digits; empty = no certificate was read
	bool is_ca = false;
};

//! Facts of the first certificate in a PEM file. NotFound (no such file), IoError (unreadable), InvalidArgument (no
//! certificate in it); each names the path.
Result<CertificateFacts> ReadCertificate(const std::string &path);

//! Facts of a parsed certificate; not null.
CertificateFacts FactsOf(x509_st *certificate);

//! One line: SANs, CN, issuer, validity, EKUs, fingerprint. Unprintable bytes are shown as \xNN.
std::string DescribeCertificate(const CertificateFacts &facts);

//! Whole file, at most 1 MiB. NotFound, IoError, InvalidArgument (larger). `what` names it in the message.
Result<std::string> ReadSmallFile(const std::string &path, const char *what);

//! Bytes made safe to show: printable ASCII stays, the rest becomes \xNN; cut after size_max with "…".
std::string Printable(ByteView bytes, size_t size_max = 2048);

} // namespace transport
} // namespace quack
