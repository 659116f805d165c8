#include "quack/raft/raft.hpp"

#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

class Raft::Impl : public Core {
public:
	using Core::Core;
};

Raft::Raft(const Config &config, LogReader &log, const RestoredState &restored, MonotonicNs now,
           const Sabotage &sabotage)
    : impl(new Impl(config, log, restored, now, sabotage)) {
}

Raft::~Raft() = default;
Raft::Raft(Raft &&other) noexcept = default;

Ready Raft::Step(const Event &event) {
	return impl->Step(event);
}

MonotonicNs Raft::NextDeadline() const {
	return impl->NextDeadline();
}

bool Raft::IsQuiet() const {
	return impl->IsQuiet();
}

CoreStatus Raft::GetStatus() const {
	return impl->GetStatus();
}

void Raft::CheckInvariants() const {
	impl->CheckInvariants();
}

} // namespace raft
} // namespace quack
