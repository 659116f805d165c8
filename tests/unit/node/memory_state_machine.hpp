//! A state machine in memory: an ordered list of payloads. Its "disk" outlives it, so that a restart can be played.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "quack/node/state_machine.hpp"

namespace quack {
namespace test {

//! One state: what was applied, and where each group stands.
struct ListState {
	std::vector<std::string> values;
	std::map<raft::GroupId, node::AppliedPosition> positions;
	std::map<raft::GroupId, node::GroupDefinition> groups;
	uint64_t groups_version = 0;

	std::string Encode() const;
	//! Corruption when the bytes are not one.
	static Result<ListState> Decode(const std::string &bytes);
};

//! What survives the process.
struct ListDisk {
	std::mutex lock;
	ListState checkpoint;
	uint64_t image_count = 0;
	//! Of images that are to outlive the process, by id.
	std::map<uint64_t, ListState> retained;
};

//! Some payloads mean more than a value: "create 7 name" and "retire 7" (in the root group), and any that begins with
//! "after 3:12 4:1 " needs these positions of other groups. All are kept as values as well.
class MemoryStateMachine final : public node::StateMachine {
public:
	explicit MemoryStateMachine(std::shared_ptr<ListDisk> disk);

	Status Apply(const std::vector<node::CommittedEntry> &entries) override;
	std::vector<node::Position> Needs(const node::CommittedEntry &entry) const override;
	std::vector<node::GroupDefinition> Groups() const override;
	uint64_t GroupsVersion() const override;
	std::vector<node::AppliedPosition> Applied() const override;
	std::vector<node::AppliedPosition> Durable() const override;
	Status Checkpoint() override;
	Result<std::unique_ptr<SnapshotImage>> OpenSnapshot() override;
	std::vector<std::unique_ptr<SnapshotImage>> RetainedSnapshots() override;
	Status InstallSnapshot(const std::string &path) override;

	std::vector<std::string> Values() const;
	//! Applying this payload fails like a broken disk would.
	void FailOn(const std::string &payload);
	//! Applying this payload needs space that is not there; empty = there is.
	void FillDiskAt(const std::string &payload);
	//! Applying this payload breaks an invariant.
	void PanicOn(const std::string &payload);
	//! Apply waits while held.
	void Hold(bool hold);
	uint64_t CheckpointCount() const;
	uint64_t InstallCount() const;

private:
	Status ApplyOne(const node::CommittedEntry &committed);

	std::shared_ptr<ListDisk> disk;
	mutable std::mutex lock;
	std::condition_variable released;
	ListState state;
	std::string fail_on;
	std::string full_at;
	bool was_full = false; //! the last entry found no space
	std::string panic_on;
	bool is_held = false;
	uint64_t checkpoint_count = 0;
	uint64_t install_count = 0;
};

} // namespace test
} // namespace quack
