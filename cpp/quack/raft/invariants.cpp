#include "quack/raft/core.hpp"

namespace quack {
namespace raft {

void Core::CheckInvariants() const {
}

} // namespace raft
} // namespace quack
