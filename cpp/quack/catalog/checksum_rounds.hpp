//! Who reported which checksums at one place of the log, and what follows from it. No DuckDB object, no thread, no
//! clock.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "quack/catalog/object_hash.hpp"
#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"

namespace quack {
namespace catalog {

//! What one node found at the index of a mark: the payload of an EffectKind::Checksum entry that is no mark.
struct ChecksumReport {
	raft::NodeId member = raft::NO_NODE;
	std::string node_id;
	//! The life of the node's database (EntryHeader::incarnation): what an earlier one found says nothing about this
	//! one.
	uint64_t life = 0;
	raft::LogIndex index = 0; //! of the mark
	uint64_t cost_us = 0;     //! CPU time it took
	std::string failure;      //! why there are no hashes; else empty
	std::vector<ObjectHash> objects;
};

std::string Encode(const ChecksumReport &report);
//! Corruption when the bytes are not one.
Result<ChecksumReport> DecodeChecksumReport(ByteView bytes);

//! A member whose value is not that of the majority.
struct OddMember {
	raft::NodeId member = raft::NO_NODE;
	std::string node_id;
	uint64_t life = 0;
	ObjectHash value; //! hash empty = the object does not exist there
};

//! What the reports of one round say about one object.
struct ObjectVerdict {
	std::string schema;
	std::string object;
	std::string type;
	//! The voters do not agree.
	bool differs = false;
	//! One value, `majority`, has a majority of all voters: members with another one are wrong.
	bool is_decided = false;
	//! No value can get one any more.
	bool is_undecidable = false;
	ObjectHash majority; //! hash empty = the object does not exist there
	std::vector<OddMember> odd;
	//! "n0: 3 rows, hash ...; n1: it does not exist", for messages.
	std::string values;
};

//! Apply thread only, or under the owner's lock.
class ChecksumRounds {
public:
	//! A later report of the same node takes the place of an earlier one: two disks under one name have one vote.
	//! `voters`: node ids. Returns what the round says now, for those objects alone that differ.
	std::vector<ObjectVerdict> Add(ChecksumReport report, const std::vector<std::string> &voters);
	//! Of all rounds that are remembered: the last two, and the last ones in which something differed.
	std::vector<ChecksumRow> Rows(const std::vector<std::string> &voters) const;
	//! The highest cost that a report names of the newest round in which somebody hashed; 0 = no such round.
	uint64_t NewestCostUs() const;

private:
	//! By node id.
	using Round = std::map<std::string, ChecksumReport>;
	static std::vector<ObjectVerdict> Judge(const Round &round, const std::vector<std::string> &voters);
	void Forget(const std::vector<std::string> &voters);

	std::map<raft::LogIndex, Round> rounds;
};

} // namespace catalog
} // namespace quack
