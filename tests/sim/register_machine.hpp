//! The replicated state of the simulation: a few registers with compare-and-set, plus a record of everything applied.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace sim {

enum class OpKind : uint8_t { Read = 0, Write = 1, Cas = 2 };

//! What one proposal carries. Values are unique per operation; 0 is the initial value.
struct Command {
	uint32_t op = 0;
	OpKind kind = OpKind::Write;
	uint32_t key = 0;
	uint32_t value = 0;
	//! Cas only.
	uint32_t expected = 0;
};

SharedBytes EncodeCommand(const Command &command, size_t padding_bytes);
std::optional<Command> DecodeCommand(ByteView bytes);

//! Outcome of one command; equal on every node.
struct CommandOutcome {
	//! Value seen before the command.
	uint32_t observed = 0;
	//! False only for a Cas whose expectation failed.
	bool changed = false;
};

//! Copyable: a copy is a snapshot.
class RegisterMachine {
public:
	RegisterMachine(uint32_t key_count, const raft::Membership &initial);

	//! entry.index must be AppliedIndex() + 1.
	CommandOutcome Apply(const raft::Entry &entry);
	uint32_t Read(uint32_t key) const {
		return registers[key];
	}
	raft::LogIndex AppliedIndex() const {
		return applied_index;
	}
	//! Chained hash of all applied entries: equal states have equal histories.
	uint64_t HistoryHash() const {
		return history_hash;
	}
	//! Operations applied, in order.
	const std::vector<uint32_t> &AppliedOps() const {
		return applied_ops;
	}
	//! Position at an index at or below AppliedIndex(): its membership in force; the term is the caller's.
	raft::Membership MembershipAt(raft::LogIndex index) const;
	//! The whole machine as the bytes of an image, with a checksum.
	std::string Encode() const;
	//! Corruption when the bytes are not one whole image.
	static Result<RegisterMachine> Decode(ByteView bytes);
	raft::Term AppliedTerm() const {
		return applied_term;
	}

private:
	struct MembershipSince {
		raft::LogIndex index;
		raft::Membership membership;
	};

	raft::LogIndex applied_index = 0;
	raft::Term applied_term = 0;
	uint64_t history_hash = 1;
	std::vector<uint32_t> registers;
	std::vector<uint32_t> applied_ops;
	std::vector<MembershipSince> memberships;
};

using MachineImage = std::shared_ptr<const RegisterMachine>;

} // namespace sim
} // namespace quack
