#include "unit/node/memory_state_machine.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "quack/common/prng.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace test {

namespace {

std::vector<node::AppliedPosition> PositionsOf(const ListState &state) {
	std::vector<node::AppliedPosition> result;
	for (auto &entry : state.positions) {
		result.push_back(entry.second);
	}
	return result;
}

class ListImage final : public node::StateMachine::SnapshotImage {
public:
	ListImage(std::shared_ptr<ListDisk> disk_p, uint64_t id_p, ListState state_p)
	    : disk(std::move(disk_p)), id(id_p), state(std::move(state_p)), positions(PositionsOf(state)),
	      bytes(state.Encode()) {
	}
	uint64_t Id() const override {
		return id;
	}
	const std::vector<node::AppliedPosition> &Positions() const override {
		return positions;
	}
	uint64_t Bytes() const override {
		return bytes.size();
	}
	Result<std::string> Read(uint64_t offset, size_t size) override {
		return bytes.substr(static_cast<size_t>(offset), size);
	}
	Status Retain(bool keep) override {
		std::lock_guard<std::mutex> guard(disk->lock);
		disk->retained.erase(id);
		if (keep) {
			disk->retained.emplace(id, state);
		}
		return Status::Ok();
	}

private:
	const std::shared_ptr<ListDisk> disk;
	const uint64_t id;
	const ListState state;
	std::vector<node::AppliedPosition> positions;
	std::string bytes;
};

} // namespace

std::string ListState::Encode() const {
	std::string out;
	ByteWriter writer(out);
	writer.PutVarint(positions.size());
	for (auto &entry : positions) {
		writer.PutU64(entry.first);
		writer.PutU64(entry.second.index);
		writer.PutU64(entry.second.term);
		writer.PutBytes(raft::EncodeMembership(entry.second.membership));
	}
	writer.PutU64(groups_version);
	writer.PutVarint(groups.size());
	for (auto &entry : groups) {
		writer.PutU64(entry.first);
		writer.PutBytes(entry.second.name);
		writer.PutBytes(raft::EncodeMembership(entry.second.membership));
	}
	writer.PutVarint(values.size());
	for (auto &value : values) {
		writer.PutBytes(value);
	}
	return out;
}

Result<ListState> ListState::Decode(const std::string &bytes) {
	ListState state;
	ByteReader reader(bytes);
	auto position_count = reader.GetVarint();
	for (uint64_t i = 0; i < position_count && !reader.Failed(); i++) {
		node::AppliedPosition position;
		position.group = reader.GetU64();
		position.index = reader.GetU64();
		position.term = reader.GetU64();
		auto membership = raft::DecodeMembership(reader.GetBytes());
		if (!membership.IsOk()) {
			return membership.GetStatus();
		}
		position.membership = membership.Value();
		state.positions[position.group] = position;
	}
	state.groups_version = reader.GetU64();
	auto group_count = reader.GetVarint();
	for (uint64_t i = 0; i < group_count && !reader.Failed(); i++) {
		node::GroupDefinition group;
		group.id = reader.GetU64();
		group.name = std::string(reader.GetBytes());
		auto membership = raft::DecodeMembership(reader.GetBytes());
		if (!membership.IsOk()) {
			return membership.GetStatus();
		}
		group.membership = membership.Value();
		state.groups[group.id] = group;
	}
	auto value_count = reader.GetVarint();
	for (uint64_t i = 0; i < value_count && !reader.Failed(); i++) {
		state.values.emplace_back(reader.GetBytes());
	}
	if (!reader.Done()) {
		return Status(ErrorCode::Corruption, "not a list image");
	}
	return state;
}

MemoryStateMachine::MemoryStateMachine(std::shared_ptr<ListDisk> disk_p) : disk(std::move(disk_p)) {
	std::lock_guard<std::mutex> guard(disk->lock);
	state = disk->checkpoint;
}

Status MemoryStateMachine::Apply(const std::vector<node::CommittedEntry> &entries) {
	std::unique_lock<std::mutex> guard(lock);
	released.wait(guard, [this] { return !is_held; });
	auto may_repeat = was_full; // then the same entries come again
	for (auto &committed : entries) {
		if (may_repeat && committed.entry.index <= state.positions[committed.group].index) {
			continue;
		}
		auto status = ApplyOne(committed);
		was_full = status.Code() == ErrorCode::DiskFull;
		if (!status.IsOk()) {
			return status;
		}
	}
	return Status::Ok();
}

Status MemoryStateMachine::ApplyOne(const node::CommittedEntry &committed) {
	auto &entry = committed.entry;
	if (committed.group != raft::ROOT_GROUP && state.groups.count(committed.group) == 0) {
		return Status::Ok(); // retired earlier in the same call
	}
	auto &position = state.positions[committed.group];
	if (entry.index != position.index + 1) {
		return Status(ErrorCode::Internal,
		              "index " + std::to_string(entry.index) + " follows " + std::to_string(position.index));
	}
	for (auto &need : Needs(committed)) {
		if (state.positions[need.group].index < need.index) {
			return Status(ErrorCode::Internal, "'" + *entry.payload + "' was applied before what it needs");
		}
	}
	if (!fail_on.empty() && *entry.payload == fail_on) {
		return Status(ErrorCode::IoError, "this node cannot apply '" + fail_on + "'");
	}
	if (!full_at.empty() && *entry.payload == full_at) {
		return Status(ErrorCode::DiskFull, "no space for '" + full_at + "'");
	}
	QUACK_CHECK(panic_on.empty() || *entry.payload != panic_on, "the test asked for it");
	position.group = committed.group;
	position.index = entry.index;
	position.term = entry.term;
	if (entry.type == raft::EntryType::Membership) {
		position.membership = raft::DecodeMembership(*entry.payload).Value();
		return Status::Ok();
	}
	if (entry.type == raft::EntryType::NoOp) {
		return Status::Ok();
	}
	state.values.push_back(*entry.payload);
	std::istringstream words(*entry.payload);
	std::string verb;
	node::GroupDefinition group;
	words >> verb >> group.id >> group.name;
	if (verb == "create") {
		group.membership = position.membership;
		state.groups[group.id] = group;
		state.groups_version++;
	} else if (verb == "retire") {
		state.groups.erase(group.id);
		state.positions.erase(group.id);
		state.groups_version++;
	}
	return Status::Ok();
}

std::vector<node::Position> MemoryStateMachine::Needs(const node::CommittedEntry &entry) const {
	std::vector<node::Position> needs;
	std::istringstream words(*entry.entry.payload);
	std::string verb;
	node::Position need;
	char colon = 0;
	words >> verb;
	while (verb == "after" && words >> need.group >> colon >> need.index) {
		needs.push_back(need);
	}
	return needs;
}

std::vector<node::GroupDefinition> MemoryStateMachine::Groups() const {
	std::lock_guard<std::mutex> guard(lock);
	std::vector<node::GroupDefinition> result;
	for (auto &entry : state.groups) {
		result.push_back(entry.second);
	}
	return result;
}

uint64_t MemoryStateMachine::GroupsVersion() const {
	std::lock_guard<std::mutex> guard(lock);
	return state.groups_version;
}

std::vector<node::AppliedPosition> MemoryStateMachine::Applied() const {
	std::lock_guard<std::mutex> guard(lock);
	return PositionsOf(state);
}

std::vector<node::AppliedPosition> MemoryStateMachine::Durable() const {
	std::lock_guard<std::mutex> guard(disk->lock);
	return PositionsOf(disk->checkpoint);
}

Status MemoryStateMachine::Checkpoint() {
	std::lock_guard<std::mutex> guard(lock);
	std::lock_guard<std::mutex> disk_guard(disk->lock);
	disk->checkpoint = state;
	checkpoint_count++;
	return Status::Ok();
}

Result<std::unique_ptr<node::StateMachine::SnapshotImage>> MemoryStateMachine::OpenSnapshot() {
	std::lock_guard<std::mutex> guard(disk->lock);
	// As random as it takes: two disks of one test never have the same.
	auto id = Prng(reinterpret_cast<uintptr_t>(disk.get()) + disk->image_count++).Next() | 1;
	return std::unique_ptr<SnapshotImage>(new ListImage(disk, id, disk->checkpoint));
}

std::vector<std::unique_ptr<node::StateMachine::SnapshotImage>> MemoryStateMachine::RetainedSnapshots() {
	std::lock_guard<std::mutex> guard(disk->lock);
	std::vector<std::unique_ptr<SnapshotImage>> images;
	for (auto &entry : disk->retained) {
		images.push_back(std::make_unique<ListImage>(disk, entry.first, entry.second));
	}
	return images;
}

Status MemoryStateMachine::InstallSnapshot(const std::string &path) {
	std::ifstream file(path, std::ios::binary);
	std::stringstream bytes;
	bytes << file.rdbuf();
	std::filesystem::remove(path);
	auto decoded = ListState::Decode(bytes.str());
	if (!decoded.IsOk()) {
		return decoded.GetStatus();
	}
	std::lock_guard<std::mutex> guard(lock);
	std::lock_guard<std::mutex> disk_guard(disk->lock);
	for (auto &entry : state.positions) {
		auto is_retired = entry.first != raft::ROOT_GROUP && decoded.Value().groups.count(entry.first) == 0;
		if (!is_retired && decoded.Value().positions[entry.first].index < entry.second.index) {
			return Status(ErrorCode::InvalidArgument, "the image is older than the state");
		}
	}
	// Another list, or the same one under another number: never an old number for another list.
	decoded.Value().groups_version += state.groups_version + 1;
	state = decoded.Value();
	disk->checkpoint = state;
	install_count++;
	return Status::Ok();
}

std::vector<std::string> MemoryStateMachine::Values() const {
	std::lock_guard<std::mutex> guard(lock);
	return state.values;
}

void MemoryStateMachine::FailOn(const std::string &payload) {
	std::lock_guard<std::mutex> guard(lock);
	fail_on = payload;
}

void MemoryStateMachine::FillDiskAt(const std::string &payload) {
	std::lock_guard<std::mutex> guard(lock);
	full_at = payload;
}

void MemoryStateMachine::PanicOn(const std::string &payload) {
	std::lock_guard<std::mutex> guard(lock);
	panic_on = payload;
}

void MemoryStateMachine::Hold(bool hold) {
	{
		std::lock_guard<std::mutex> guard(lock);
		is_held = hold;
	}
	released.notify_all();
}

uint64_t MemoryStateMachine::CheckpointCount() const {
	std::lock_guard<std::mutex> guard(lock);
	return checkpoint_count;
}

uint64_t MemoryStateMachine::InstallCount() const {
	std::lock_guard<std::mutex> guard(lock);
	return install_count;
}

} // namespace test
} // namespace quack
