//! What a simulated cluster of groups is made of: clients, their sessions and questions, nodes, the weather of a run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quack/common/prng.hpp"
#include "quack/node/apply_order.hpp"
#include "quack/node/transaction_driver.hpp"
#include "quack/node/transaction_finisher.hpp"
#include "sim/groups/machine.hpp"

namespace quack {
namespace sim {
namespace groups {

using node::TransactionId;
using raft::GroupId;
using raft::LogIndex;

//! What a client wants done, over as many attempts as it takes.
struct Operation {
	enum class Kind : uint8_t { Transfer, Note, Alter, Place };
	Kind kind = Kind::Transfer;
	uint64_t number = 0;
	uint64_t from = 0;
	uint64_t to = 0;
	int64_t amount = 0;
	std::string table;
	uint32_t group_count = 0;
	std::string group_name;
	uint32_t attempts = 0;
};

//! What is known of one attempt of a transfer.
struct Attempt {
	Operation operation;
	enum class Told : uint8_t { Nothing, Committed, Refused };
	Told told = Told::Nothing;
};

struct Pending {
	GroupId group = raft::ROOT_GROUP;
	bool is_prepare = false;
	SharedBytes payload;
	uint64_t next_at = 0;
};

struct Session {
	size_t node = 0;
	Operation operation;
	uint64_t attempt = 0; //! number of the transaction id
	TransactionId id {};
	std::unique_ptr<node::TransactionDriver> driver; //! none: one group
	GroupId coordinator = raft::ROOT_GROUP;
	std::vector<Pending> pending;
	bool is_orphan = false; //! its client has gone and asks another node
	bool is_done = false;
};

//! A client that lost its answer.
struct Inquiry {
	size_t node = 0;
	Operation operation;
	uint64_t attempt = 0;
	TransactionId id {};
	std::vector<Pending> pending;
	bool is_root_known = false;
	bool is_done = false;
};

struct Proposal {
	uint64_t at = 0;
	GroupId group = raft::ROOT_GROUP;
	SharedBytes payload;
};

struct Node {
	std::unique_ptr<Machine> machine;
	std::unique_ptr<Machine> saved;
	std::unique_ptr<node::ApplyOrder> order;
	std::unique_ptr<node::TransactionFinisher> finisher;
	std::map<GroupId, LogIndex> delivered;
	uint64_t groups_version = 0;
	uint64_t down_until = 0; //! 0 = up
};

//! Chances, in thousandths, drawn for the seed.
struct Weather {
	explicit Weather(Prng &random)
	    : loss(random.Below(200)), copy(random.Below(200)), delay(1 + random.Below(12)),
	      deliver(150 + random.Below(850)), crash(random.Below(6)), checkpoint(5 + random.Below(40)),
	      image(random.Below(8)), leader(random.Below(20)), death(random.Below(10)), give_up(random.Below(8)),
	      ddl(20 + random.Below(200)), batch(1 + random.Below(6)) {
	}
	uint64_t loss;
	uint64_t copy;
	uint64_t delay;
	uint64_t deliver;
	uint64_t crash;
	uint64_t checkpoint;
	uint64_t image;
	uint64_t leader;
	uint64_t death;
	uint64_t give_up;
	uint64_t ddl;
	uint64_t batch;
};

} // namespace groups
} // namespace sim
} // namespace quack
