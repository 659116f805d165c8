//! The ids under which the attempts at one statement go into the log.
#pragma once

#include <optional>
#include <string>

#include "quack/catalog/replicated_database.hpp"

namespace quack {
namespace sql {

//! A client names a statement by one request id, whatever happens on the way. An attempt that the log rejected as a
//! conflict stays rejected, so the next attempt needs an id of its own: the n-th one is derived from the first.
//! Everyone who repeats the statement, on whatever node, walks the same ids and goes on only from an attempt that the
//! log has decided, so two of them never commit under different ids.
class AttemptWalk {
public:
	//! Empty `request_id`: a new id for each attempt that was tried. Throws when the text is no request id.
	AttemptWalk(const std::string &request_id, catalog::ReplicatedDatabase *replica);

	//! The id of the attempt that comes now.
	const catalog::RequestId &Id() const {
		return id;
	}
	//! See catalog::RequestId: of that id, or later.
	raft::LogIndex Base() const {
		return base;
	}
	//! Moves past attempts that the log rejected and that may be repeated. What it knows of the attempt that stands
	//! then: committed, or rejected for good; empty when the log has not decided it.
	std::optional<catalog::CommitOutcome> Advance();
	//! For statements without a client's id: the attempt that failed is over, whatever it was.
	void Renew();

private:
	catalog::ReplicatedDatabase *replica;
	bool is_named;
	catalog::RequestId first {};
	catalog::RequestId id {};
	raft::LogIndex base = UINT64_MAX;
	uint32_t number = 0;
};

} // namespace sql
} // namespace quack
