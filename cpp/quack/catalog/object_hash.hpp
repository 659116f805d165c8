//! Hashes of what a node holds, object by object. No DuckDB object.
#pragma once

#include <cstdint>
#include <string>

#include "quack/raft/types.hpp"

namespace quack {
namespace catalog {

//! One row of quack_state_hash(): an order-independent hash over the bit-exact values of one table or, for other
//! catalog objects, of its definition (rows = 0).
struct ObjectHash {
	std::string schema;
	std::string object;
	std::string type; //! table, view, index, sequence, macro, type, schema, trigger
	uint64_t rows = 0;
	std::string hash;                 //! 32 hex digits
	raft::LogIndex applied_index = 0; //! of the root group, same for all rows of one call
};

//! One row of quack_checksums(): what a node held at the index of a mark, and what that is worth.
struct ChecksumRow {
	raft::LogIndex index = 0;
	std::string node_id;
	ObjectHash hash; //! without hash: the object does not exist there
	//! equal (to what a majority of the voters holds), odd (a majority holds something else), differs (the majority is
	//! not known yet), no_majority, pending (nothing differs, the majority has not reported), not_computed
	std::string verdict;
	std::string reason; //! why not computed
};

} // namespace catalog
} // namespace quack
