#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

//! The leader's log no longer reaches back to ours: the owner must fetch a snapshot (paper §7).
void Core::RecvSnapshotRequest(const Message &message) {
	if (!HeardLeader(message.from)) {
		return;
	}
	if (installing_snapshot) {
		return;
	}
	auto &wanted = message.snapshot;
	if (wanted.index > commit_index && !log.Matches(wanted.index, wanted.term)) {
		installing_snapshot = true;
		snapshot_source = message.from;
		ready.install_snapshot = wanted;
		ready.snapshot_from = message.from;
		return;
	}
	// We have all of it already.
	AdvanceCommit(wanted.index);
	auto response = MakeMessage(MessageType::SnapshotResponse, message.from);
	response.log_index = commit_index;
	SendAfterAppend(std::move(response));
}

void Core::SnapshotInstalled(const SnapshotInstalledEvent &event) {
	if (!installing_snapshot) {
		Fail(Status(ErrorCode::Internal, "a snapshot was reported installed that the core did not ask for"));
		return;
	}
	installing_snapshot = false;
	ResetElectionTimer();
	auto response = MakeMessage(MessageType::SnapshotResponse, snapshot_source);
	if (!event.ok) {
		auto status = log.BeginStep();
		if (!status.IsOk()) {
			Fail(status);
			return;
		}
		response.reject = true;
		Send(std::move(response));
		return;
	}
	auto &snapshot = event.snapshot;
	if (snapshot.index < commit_index || snapshot.index < handed_index) {
		Fail(Status(ErrorCode::Internal, "group " + std::to_string(config.group) + ": a snapshot at index " +
		                                     std::to_string(snapshot.index) +
		                                     " was installed over a state that had reached " +
		                                     std::to_string(std::max(commit_index, handed_index))));
		return;
	}
	if (snapshot.term > term) {
		// Taken after the source had moved on to a term that we have not heard of yet.
		BecomeFollower(snapshot.term, NO_NODE);
		response.term = term;
	}
	log.Reset(snapshot.index, snapshot.term);
	commit_index = snapshot.index;
	handed_index = snapshot.index;
	applied_index = snapshot.index;
	unapplied.clear();
	unapplied_bytes = 0;
	memberships.clear();
	memberships.push_back({snapshot.index, snapshot.membership});
	MembershipInForceChanged();
	response.log_index = snapshot.index;
	SendAfterAppend(std::move(response));
}

} // namespace raft
} // namespace quack
