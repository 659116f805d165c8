#include "sim/register_machine.hpp"

#include "quack/common/check.hpp"
#include "quack/common/crc32c.hpp"
#include "quack/raft/raft.hpp"
#include "sim/trace.hpp"

namespace quack {
namespace sim {

SharedBytes EncodeCommand(const Command &command, size_t padding_bytes) {
	std::string bytes;
	bytes.reserve(20 + padding_bytes);
	ByteWriter writer(bytes);
	writer.PutU32(command.op);
	writer.PutU8(static_cast<uint8_t>(command.kind));
	writer.PutU32(command.key);
	writer.PutU32(command.value);
	writer.PutU32(command.expected);
	bytes.append(padding_bytes, 'p');
	return MakeSharedBytes(std::move(bytes));
}

std::optional<Command> DecodeCommand(ByteView bytes) {
	ByteReader reader(bytes);
	Command command;
	command.op = reader.GetU32();
	command.kind = static_cast<OpKind>(reader.GetU8());
	command.key = reader.GetU32();
	command.value = reader.GetU32();
	command.expected = reader.GetU32();
	return reader.Failed() ? std::nullopt : std::optional<Command>(command);
}

RegisterMachine::RegisterMachine(uint32_t key_count, const raft::Membership &initial) : registers(key_count, 0) {
	memberships.push_back({0, initial});
}

CommandOutcome RegisterMachine::Apply(const raft::Entry &entry) {
	QUACK_CHECK(entry.index == applied_index + 1, "entries are applied without gaps");
	applied_index = entry.index;
	applied_term = entry.term;
	history_hash = Mix(Mix(history_hash, entry.term), HashEntry(entry));
	CommandOutcome outcome;
	if (entry.type == raft::EntryType::Membership) {
		auto membership = raft::DecodeMembership(*entry.payload);
		memberships.push_back({entry.index, membership.Value()});
	} else if (entry.type == raft::EntryType::Normal) {
		auto command = DecodeCommand(*entry.payload);
		QUACK_CHECK(command && command->key < registers.size(), "a committed command is well formed");
		uint32_t &reg = registers[command->key];
		outcome.observed = reg;
		outcome.changed = command->kind == OpKind::Write || reg == command->expected;
		if (outcome.changed) {
			reg = command->value;
		}
		applied_ops.push_back(command->op);
	}
	return outcome;
}

std::string RegisterMachine::Encode() const {
	std::string bytes;
	ByteWriter writer(bytes);
	writer.PutU64(applied_index);
	writer.PutU64(applied_term);
	writer.PutU64(history_hash);
	writer.PutVarint(registers.size());
	for (auto value : registers) {
		writer.PutU32(value);
	}
	writer.PutVarint(applied_ops.size());
	for (auto op : applied_ops) {
		writer.PutVarint(op);
	}
	writer.PutVarint(memberships.size());
	for (const auto &since : memberships) {
		writer.PutVarint(since.index);
		writer.PutBytes(raft::EncodeMembership(since.membership));
	}
	writer.PutU32(Crc32c(bytes));
	return bytes;
}

Result<RegisterMachine> RegisterMachine::Decode(ByteView bytes) {
	Status damaged(ErrorCode::Corruption, "the image is not whole");
	constexpr size_t CRC_BYTES = 4;
	if (bytes.size() < CRC_BYTES) {
		return damaged;
	}
	auto body = bytes.substr(0, bytes.size() - CRC_BYTES);
	if (ByteReader(bytes.substr(body.size())).GetU32() != Crc32c(body)) {
		return damaged;
	}
	ByteReader reader(body);
	RegisterMachine machine(0, raft::Membership());
	machine.memberships.clear();
	machine.applied_index = reader.GetU64();
	machine.applied_term = reader.GetU64();
	machine.history_hash = reader.GetU64();
	for (auto count = reader.GetVarint(); count > 0 && !reader.Failed(); count--) {
		machine.registers.push_back(reader.GetU32());
	}
	for (auto count = reader.GetVarint(); count > 0 && !reader.Failed(); count--) {
		machine.applied_ops.push_back(static_cast<uint32_t>(reader.GetVarint()));
	}
	for (auto count = reader.GetVarint(); count > 0 && !reader.Failed(); count--) {
		auto index = reader.GetVarint();
		auto membership = raft::DecodeMembership(reader.GetBytes());
		if (!membership.IsOk()) {
			return damaged;
		}
		machine.memberships.push_back({index, membership.Value()});
	}
	return reader.Done() ? Result<RegisterMachine>(std::move(machine)) : Result<RegisterMachine>(damaged);
}

raft::Membership RegisterMachine::MembershipAt(raft::LogIndex index) const {
	const raft::Membership *found = &memberships.front().membership;
	for (const auto &since : memberships) {
		if (since.index > index) {
			break;
		}
		found = &since.membership;
	}
	return *found;
}

} // namespace sim
} // namespace quack
