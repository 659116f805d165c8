//! The one rule by which a certificate proves a node: signed by the cluster CA, in date, DNS:<node_id> AND
//! URI:<node_id> in the SANs, serverAuth AND clientAuth. The common name and addresses prove nothing. Pure.
#pragma once

#include "quack/transport/certificate.hpp"

namespace quack {
namespace transport {

//! What the other side showed in the TLS handshake.
struct PresentedCertificate {
	bool is_present = false;
	CertificateFacts facts;
	std::vector<std::string> chain_errors; //! of the chain check against the CA bundle; empty = verified
	std::string trusted_issuers;           //! subjects in this node's CA bundle, for the refusal text
};

//! Names the certificate proves: those that are both DNS and URI SAN. The chain is not looked at.
std::vector<std::string> ProvenNames(const CertificateFacts &facts);

//! Ok when the certificate proves `expected_node_id`; else Unauthorized listing every fault, the expected names, the
//! names that came, issuer, validity, EKUs and the fix.
Status CheckPeerIdentity(const PresentedCertificate &presented, const std::string &expected_node_id);

//! The weaker rule for an HTTP/1.1 client: no certificate is fine, an invalid one is not.
Status CheckClientCertificate(const PresentedCertificate &presented);

} // namespace transport
} // namespace quack
