#include "quack/sql/attempt_walk.hpp"

#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

namespace {

catalog::RequestId AttemptId(const catalog::RequestId &first, uint32_t number) {
	auto id = first;
	for (size_t i = 0; i < sizeof(number); i++) {
		id[i] ^= static_cast<uint8_t>(number >> (8 * i));
	}
	return id;
}

} // namespace

AttemptWalk::AttemptWalk(const std::string &request_id, catalog::ReplicatedDatabase *replica_p)
    : replica(replica_p), is_named(!request_id.empty()) {
	if (!is_named) {
		Renew();
		return;
	}
	auto parsed = catalog::RequestIdFromString(request_id);
	if (!parsed.IsOk()) {
		ThrowCoded(parsed.GetStatus());
	}
	first = parsed.Value();
	id = first;
	base = catalog::RequestBase(first);
}

std::optional<catalog::CommitOutcome> AttemptWalk::Advance() {
	while (is_named && replica != nullptr) {
		auto outcome = replica->Outcome(id);
		if (!outcome) {
			break;
		}
		auto code = outcome->status.Code();
		if (code != ErrorCode::Conflict && code != ErrorCode::SchemaChanged) {
			return outcome;
		}
		id = AttemptId(first, ++number);
		// Whoever proposes the next attempt has seen this one rejected.
		base = outcome->base;
	}
	return std::nullopt;
}

void AttemptWalk::Renew() {
	if (!is_named) {
		id = catalog::NewRequestId();
		base = UINT64_MAX;
	}
}

} // namespace sql
} // namespace quack
