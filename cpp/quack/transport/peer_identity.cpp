#include "quack/transport/peer_identity.hpp"

#include <algorithm>

namespace quack {
namespace transport {

namespace {

bool Contains(const std::vector<std::string> &names, const std::string &name) {
	return std::find(names.begin(), names.end(), name) != names.end();
}

void AddFault(std::string &faults, const std::string &fault) {
	faults += (faults.empty() ? "" : "; ") + fault;
}

std::string ChainFaults(const PresentedCertificate &presented) {
	std::string faults;
	for (auto &error : presented.chain_errors) {
		AddFault(faults, "chain check failed: " + error);
	}
	if (!faults.empty()) {
		faults += " (this node trusts " + Printable(presented.trusted_issuers, 512) + ")";
	}
	return faults;
}

std::string NameFaults(const CertificateFacts &facts, const std::string &expected) {
	std::string faults;
	if (!Contains(facts.dns_names, expected)) {
		AddFault(faults, "SAN DNS:" + expected + " is missing");
	}
	if (!Contains(facts.uri_names, expected)) {
		AddFault(faults, "SAN URI:" + expected + " is missing");
	}
	if (!faults.empty() && facts.common_name == expected) {
		faults += " (the common name is not accepted as an identity)";
	}
	if (!Contains(facts.extended_key_usages, "serverAuth")) {
		AddFault(faults, "extended key usage serverAuth is missing");
	}
	if (!Contains(facts.extended_key_usages, "clientAuth")) {
		AddFault(faults, "extended key usage clientAuth is missing");
	}
	return faults;
}

} // namespace

std::vector<std::string> ProvenNames(const CertificateFacts &facts) {
	std::vector<std::string> names;
	for (auto &name : facts.uri_names) {
		if (Contains(facts.dns_names, name) && !Contains(names, name)) {
			names.push_back(name);
		}
	}
	return names;
}

Status CheckPeerIdentity(const PresentedCertificate &presented, const std::string &expected_node_id) {
	auto shown = "'" + Printable(expected_node_id, 256) + "'";
	auto fix = "; fix: issue a certificate signed by the cluster CA with DNS:" + Printable(expected_node_id, 256) +
	           " and URI:" + Printable(expected_node_id, 256) +
	           ", EKU serverAuth and clientAuth (quack certs issue), or correct the node name in the peers list";
	if (!presented.is_present) {
		return Status(ErrorCode::Unauthorized, "peer " + shown + " presented no certificate" + fix);
	}
	auto faults = ChainFaults(presented);
	auto name_faults = NameFaults(presented.facts, expected_node_id);
	if (!name_faults.empty()) {
		AddFault(faults, name_faults);
	}
	if (faults.empty()) {
		return Status::Ok();
	}
	return Status(ErrorCode::Unauthorized, "certificate does not prove node " + shown + ": " + faults +
	                                           "; expected DNS:" + Printable(expected_node_id, 256) +
	                                           " and URI:" + Printable(expected_node_id, 256) + "; it has " +
	                                           DescribeCertificate(presented.facts) + fix);
}

Status CheckClientCertificate(const PresentedCertificate &presented) {
	if (!presented.is_present || presented.chain_errors.empty()) {
		return Status::Ok();
	}
	return Status(ErrorCode::Unauthorized,
	              "client certificate refused: " + ChainFaults(presented) + "; it has " +
	                  DescribeCertificate(presented.facts) +
	                  "; fix: use a client certificate signed by the cluster CA with EKU clientAuth and in date, or "
	                  "none at all and a token");
}

} // namespace transport
} // namespace quack
