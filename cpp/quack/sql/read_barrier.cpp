#include "quack/sql/read_barrier.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>

namespace quack {
namespace sql {

namespace {

//! A value that one thread sets and another waits for. The engine calls back exactly once, so the wait ends.
template <class T>
class Answer {
public:
	explicit Answer(T initial) : value(std::move(initial)) {
	}
	void Set(T value_p) {
		std::lock_guard<std::mutex> guard(lock);
		value = std::move(value_p);
		done = true;
		changed.notify_all();
	}
	T Wait() {
		std::unique_lock<std::mutex> guard(lock);
		changed.wait(guard, [this] { return done; });
		return value;
	}

private:
	std::mutex lock;
	std::condition_variable changed;
	bool done = false;
	T value;
};

} // namespace

Status WaitForRootGroup(node::ConsensusEngine &engine, MonotonicNs timeout) {
	SystemClock clock;
	auto deadline = clock.Now() + timeout;
	using Index = Result<raft::LogIndex>;
	auto answer = std::make_shared<Answer<Index>>(Index(raft::LogIndex(0)));
	engine.ReadBarrier(raft::ROOT_GROUP, timeout, [answer](Index index) { answer->Set(std::move(index)); });
	auto index = answer->Wait();
	if (!index.IsOk()) {
		return index.GetStatus();
	}
	auto left = deadline - clock.Now();
	return engine.WaitApplied(raft::ROOT_GROUP, index.Value(), left > 0 ? left : 0);
}

Result<std::string> TransferLeadership(node::ConsensusEngine &engine, raft::GroupId group, const std::string &target,
                                       MonotonicNs timeout) {
	using Text = Result<std::string>;
	auto answer = std::make_shared<Answer<Text>>(Text(std::string()));
	engine.TransferLeadership(group, target, timeout, [answer](Text leader) { answer->Set(std::move(leader)); });
	return answer->Wait();
}

Result<std::string> Rebalance(node::RaftEngine &engine, MonotonicNs timeout) {
	using Text = Result<std::string>;
	auto answer = std::make_shared<Answer<Text>>(Text(std::string()));
	engine.Rebalance(timeout, [answer](Text words) { answer->Set(std::move(words)); });
	return answer->Wait();
}

Result<std::string> ChangeMember(node::RaftEngine &engine, const node::MemberChange &change, MonotonicNs timeout) {
	using Text = Result<std::string>;
	auto answer = std::make_shared<Answer<Text>>(Text(std::string()));
	engine.ChangeMember(raft::ROOT_GROUP, change, timeout, [answer](Text words) { answer->Set(std::move(words)); });
	return answer->Wait();
}

Result<node::BackupImage> OpenImage(node::RaftEngine &engine, raft::LogIndex index_min) {
	using Image = Result<node::BackupImage>;
	auto answer = std::make_shared<Answer<Image>>(Image(node::BackupImage()));
	engine.OpenImage(index_min, [answer](Image image) { answer->Set(std::move(image)); });
	return answer->Wait();
}

Result<std::string> ReadImage(node::RaftEngine &engine, uint64_t image, uint64_t offset, uint64_t size) {
	using Text = Result<std::string>;
	auto answer = std::make_shared<Answer<Text>>(Text(std::string()));
	engine.ReadImage(image, offset, size, [answer](Text data) { answer->Set(std::move(data)); });
	return answer->Wait();
}

} // namespace sql
} // namespace quack
