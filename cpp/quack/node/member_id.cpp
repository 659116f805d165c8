#include "quack/node/member_id.hpp"

namespace quack {
namespace node {

raft::NodeId MakeNodeId(const std::string &name, uint64_t incarnation) {
	uint64_t hash = 0xcbf29ce484222325ULL;
	auto add = [&hash](unsigned char byte) {
		hash = (hash ^ byte) * 0x100000001b3ULL;
	};
	for (auto c : name) {
		add(static_cast<unsigned char>(c));
	}
	add(0);
	for (unsigned i = 0; i < 8; i++) {
		add(static_cast<unsigned char>((incarnation >> (8 * i)) & 0xff));
	}
	hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
	hash ^= hash >> 31;
	return hash == raft::NO_NODE ? 1 : hash;
}

} // namespace node
} // namespace quack
