//! Runs one scenario file: blocks of command lines, "----", the expected output and an empty line; '#' starts a remark.
//! Commands are listed in README.md beside this file.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "datadriven/format.hpp"
#include "unit/raft/test_cluster.hpp"

namespace quack {
namespace raft {
namespace testing {

//! A command line: words without '=', and key=value pairs.
struct Command {
	std::string verb;
	std::vector<std::string> words;
	std::map<std::string, std::string> options;

	explicit Command(const std::string &line) {
		std::istringstream in(line);
		in >> verb;
		std::string word;
		while (in >> word) {
			auto equals = word.find('=');
			if (equals == std::string::npos) {
				words.push_back(word);
			} else {
				options[word.substr(0, equals)] = word.substr(equals + 1);
			}
		}
	}
	uint64_t WordNumber(size_t position) const {
		REQUIRE_MESSAGE(position < words.size(), "too few words after " << verb);
		return std::stoull(words[position]);
	}
	bool Has(const std::string &word) const {
		return std::find(words.begin(), words.end(), word) != words.end();
	}
	uint64_t Option(const std::string &name, uint64_t fallback) const {
		auto found = options.find(name);
		return found == options.end() ? fallback : std::stoull(found->second);
	}
	//! "(1,2,3)" -> 1, 2, 3
	std::vector<NodeId> Nodes(const std::string &name) const {
		std::vector<NodeId> nodes;
		auto found = options.find(name);
		if (found == options.end()) {
			return nodes;
		}
		std::istringstream in(found->second);
		for (char c; in >> c;) {
			if (c == '(' || c == ',' || c == ')') {
				continue;
			}
			in.unget();
			NodeId node = 0;
			in >> node;
			nodes.push_back(node);
		}
		return nodes;
	}
};

class Scenario {
public:
	Scenario() {
		cluster.now = 0;
		cluster.deliver_on_advance = false;
		cluster.on_ready = [this](NodeId node, const Ready &ready) {
			out += FormatReady(node, ready);
		};
		RegisterWorld();
		RegisterDisks();
		RegisterEvents();
		RegisterViews();
	}

	std::string Run(const std::string &line) {
		Command command(line);
		auto handler = handlers.find(command.verb);
		REQUIRE_MESSAGE(handler != handlers.end(), "unknown verb in: " << line);
		out.clear();
		handler->second(command);
		static const std::set<std::string> VIEWS = {"status", "progress", "log", "messages", "answers"};
		if ((quiet || command.verb == "run") && VIEWS.count(command.verb) == 0) {
			out.clear();
		}
		return out;
	}

private:
	using Handler = std::function<void(const Command &)>;

	void RegisterWorld();
	void RegisterDisks();
	void RegisterEvents();
	void RegisterViews();
	void AddNodes(const Command &command);
	void DeliverMessages(const Command &command);
	void Stabilize(const Command &command);
	void PrintStatus(NodeId node);
	void PrintProgress(NodeId node);
	void PrintLog(NodeId node);

	//! No word: every node.
	std::vector<NodeId> NodesOf(const Command &command) {
		std::vector<NodeId> nodes;
		for (size_t i = 0; i < command.words.size(); i++) {
			nodes.push_back(command.WordNumber(i));
		}
		if (nodes.empty()) {
			for (auto &item : cluster.nodes) {
				nodes.push_back(item.first);
			}
		}
		return nodes;
	}

	TestCluster cluster;
	std::map<std::string, Handler> handlers;
	std::string out;
	bool quiet = false;
	uint64_t next_request = 1;
};

inline void Scenario::AddNodes(const Command &command) {
	Config config;
	config.election_timeout = static_cast<MonotonicNs>(command.Option("election-ms", 1000)) * NS_PER_MS;
	config.heartbeat_interval = static_cast<MonotonicNs>(command.Option("heartbeat-ms", 100)) * NS_PER_MS;
	config.clock_drift_ppm = static_cast<uint32_t>(command.Option("drift-ppm", 10000));
	config.lease_reads = command.Option("lease", 1) != 0;
	config.election_priority = static_cast<uint32_t>(command.Option("priority", 100));
	config.append_entries_max = command.Option("append-entries", 1024);
	config.append_bytes_max = command.Option("append-bytes", 1024 * 1024);
	config.inflight_messages_max = command.Option("inflight", 64);
	config.inflight_bytes_max = command.Option("inflight-bytes", 16 * 1024 * 1024);
	config.uncommitted_bytes_max = command.Option("uncommitted-bytes", 64 * 1024 * 1024);
	config.quiet_after = static_cast<MonotonicNs>(command.Option("quiet-ms", 0)) * NS_PER_MS;
	config.pending_reads_max = command.Option("pending-reads", 4096);
	config.committed_bytes_max = command.Option("committed-bytes", 4 * 1024 * 1024);
	config.unapplied_bytes_max = command.Option("unapplied-bytes", 64 * 1024 * 1024);
	auto voters = command.Nodes("voters");
	auto learners = command.Nodes("learners");
	auto ids = command.Nodes("ids");
	if (ids.empty()) {
		ids = voters;
		ids.insert(ids.end(), learners.begin(), learners.end());
	}
	for (auto id : ids) {
		cluster.Add(id, Voters(voters, learners), config);
	}
}

inline void Scenario::RegisterWorld() {
	handlers["add-nodes"] = [this](const Command &c) {
		AddNodes(c);
	};
	handlers["quiet"] = [this](const Command &) {
		quiet = true;
	};
	handlers["verbose"] = [this](const Command &) {
		quiet = false;
	};
	handlers["advance"] = [this](const Command &c) {
		cluster.Advance(static_cast<MonotonicNs>(c.WordNumber(0)) * NS_PER_MS);
	};
	handlers["run"] = [this](const Command &c) {
		cluster.deliver_on_advance = true;
		cluster.Deliver();
		cluster.Advance(static_cast<MonotonicNs>(c.WordNumber(0)) * NS_PER_MS);
		cluster.deliver_on_advance = false;
	};
	handlers["pass"] = [this](const Command &c) {
		cluster.now += static_cast<MonotonicNs>(c.WordNumber(0)) * NS_PER_MS;
	};
	handlers["tick"] = [this](const Command &c) {
		for (auto node : NodesOf(c)) {
			cluster.Step(node, TickEvent {});
		}
	};
	handlers["deliver-msgs"] = [this](const Command &c) {
		DeliverMessages(c);
	};
	handlers["stabilize"] = [this](const Command &c) {
		Stabilize(c);
	};
	handlers["wake"] = [this](const Command &c) {
		WakeEvent event;
		for (auto node : c.Nodes("silent")) {
			event.silent[node] = cluster.now - static_cast<MonotonicNs>(c.Option("for-ms", 0)) * NS_PER_MS;
		}
		cluster.Step(c.WordNumber(0), event);
	};
	handlers["cut"] = [this](const Command &c) {
		cluster.Cut(c.WordNumber(0), c.WordNumber(1));
	};
	handlers["isolate"] = [this](const Command &c) {
		cluster.Isolate(c.WordNumber(0));
	};
	handlers["heal"] = [this](const Command &) {
		cluster.Heal();
	};
}

inline void Scenario::RegisterDisks() {
	handlers["sync"] = [this](const Command &c) {
		for (auto node : NodesOf(c)) {
			cluster.Sync(node);
		}
	};
	handlers["sync-one"] = [this](const Command &c) {
		cluster.SyncOne(c.WordNumber(0));
	};
	handlers["slow-disk"] = [this](const Command &c) {
		for (auto node : NodesOf(c)) {
			cluster.At(node).auto_sync = false;
		}
	};
	handlers["fast-disk"] = [this](const Command &c) {
		for (auto node : NodesOf(c)) {
			cluster.At(node).auto_sync = true;
			cluster.Sync(node);
		}
	};
	handlers["crash"] = [this](const Command &c) {
		cluster.Crash(c.WordNumber(0));
	};
	handlers["restart"] = [this](const Command &c) {
		cluster.Restart(c.WordNumber(0));
	};
	handlers["forget-applied"] = [this](const Command &c) {
		cluster.At(c.WordNumber(0)).applied = 0;
		cluster.At(c.WordNumber(0)).committed.clear();
	};
	handlers["slow-apply"] = [this](const Command &c) {
		cluster.At(c.WordNumber(0)).auto_apply = false;
	};
	handlers["compact"] = [this](const Command &c) {
		cluster.Compact(c.WordNumber(0), c.WordNumber(1));
	};
	handlers["fail-reads"] = [this](const Command &c) {
		cluster.At(c.WordNumber(0)).log.fail_reads = true;
	};
}

inline void Scenario::RegisterEvents() {
	handlers["campaign"] = [this](const Command &c) {
		cluster.Step(c.WordNumber(0), CampaignEvent {});
	};
	handlers["propose"] = [this](const Command &c) {
		ProposeEvent event;
		for (size_t i = 1; i < c.words.size(); i++) {
			event.items.push_back({next_request++, MakeSharedBytes(c.words[i])});
		}
		if (c.options.count("bytes") > 0) {
			event.items.push_back({next_request++, MakeSharedBytes(std::string(c.Option("bytes", 0), 'x'))});
		}
		cluster.Step(c.WordNumber(0), event);
	};
	handlers["read"] = [this](const Command &c) {
		cluster.Step(c.WordNumber(0), ReadBarrierEvent {next_request++});
	};
	handlers["transfer"] = [this](const Command &c) {
		cluster.Step(c.WordNumber(0),
		             TransferLeadershipEvent {c.words.size() > 1 ? c.WordNumber(1) : NO_NODE, c.Option("request", 0)});
	};
	handlers["change"] = [this](const Command &c) {
		cluster.Step(c.WordNumber(0),
		             ChangeMembershipEvent {next_request++, c.Nodes("voters"), c.Nodes("learners"), {}});
	};
	handlers["install-snapshot"] = [this](const Command &c) {
		cluster.InstallSnapshot(c.WordNumber(0), !c.Has("fail"));
	};
	handlers["unreachable"] = [this](const Command &c) {
		cluster.Step(c.WordNumber(0), PeerUnreachableEvent {c.WordNumber(1)});
	};
	handlers["applied"] = [this](const Command &c) {
		auto &node = cluster.At(c.WordNumber(0));
		node.applied = c.WordNumber(1);
		cluster.Step(c.WordNumber(0), AppliedEvent {node.applied});
	};
	handlers["completed"] = [this](const Command &c) {
		cluster.Step(c.WordNumber(0), AppendCompletedEvent {c.WordNumber(1), c.WordNumber(2)});
	};
	handlers["receive"] = [this](const Command &c) {
		Message message;
		message.to = c.WordNumber(0);
		message.from = c.WordNumber(1);
		message.term = c.Option("term", 0);
		message.log_index = c.Option("index", 0);
		message.log_term = c.Option("log-term", 0);
		message.commit_index = c.Option("commit", 0);
		message.context = c.Option("context", 0);
		message.hint_index = c.Option("hint", 0);
		message.reject = c.Has("reject");
		message.pre_vote = c.Has("pre");
		message.force = c.Has("force");
		message.quiet = c.Has("quiet");
		for (auto type = 1; type <= static_cast<int>(MessageType::TimeoutNow); type++) {
			if (c.Has(MessageName(static_cast<MessageType>(type)))) {
				message.type = static_cast<MessageType>(type);
			}
		}
		for (uint64_t i = 0; i < c.Option("entries", 0); i++) {
			message.entries.push_back({c.Option("entry-term", message.term), message.log_index + i + 1,
			                           EntryType::Normal, MakeSharedBytes("r" + Number(i))});
		}
		cluster.Receive(message.to, message);
	};
}

inline void Scenario::RegisterViews() {
	handlers["status"] = [this](const Command &c) {
		for (auto node : NodesOf(c)) {
			PrintStatus(node);
		}
	};
	handlers["progress"] = [this](const Command &c) {
		PrintProgress(c.WordNumber(0));
	};
	handlers["log"] = [this](const Command &c) {
		for (auto node : NodesOf(c)) {
			PrintLog(node);
		}
	};
	handlers["messages"] = [this](const Command &) {
		for (auto &message : cluster.network) {
			out += FormatMessage(message) + "\n";
		}
		out += cluster.network.empty() ? "none\n" : "";
	};
	handlers["answers"] = [this](const Command &c) {
		auto &node = cluster.At(c.WordNumber(0));
		for (auto &proposal : node.proposals) {
			out += FormatProposal(proposal) + "\n";
		}
		for (auto &read : node.reads) {
			out += FormatRead(read) + "\n";
		}
		node.proposals.clear();
		node.reads.clear();
		out += out.empty() ? "none\n" : "";
	};
}

//! One pass over what is under way now: [to=(..)] [from=(..)] [type=Name] chooses, the rest stays; `drop` loses the
//! chosen, `twice` delivers them twice, `reverse` delivers the last sent first.
inline void Scenario::DeliverMessages(const Command &command) {
	auto to = command.Nodes("to");
	auto from = command.Nodes("from");
	auto type = command.options.find("type");
	std::deque<Message> chosen;
	std::deque<Message> rest;
	for (auto &message : cluster.network) {
		bool matches = (to.empty() || std::count(to.begin(), to.end(), message.to) > 0) &&
		               (from.empty() || std::count(from.begin(), from.end(), message.from) > 0) &&
		               (type == command.options.end() || type->second == MessageName(message.type));
		(matches ? chosen : rest).push_back(message);
	}
	cluster.network = rest;
	if (command.Has("reverse")) {
		std::reverse(chosen.begin(), chosen.end());
	}
	for (auto &message : chosen) {
		if (command.Has("drop")) {
			out += "lost " + FormatMessage(message) + "\n";
			continue;
		}
		for (int i = command.Has("twice") ? 2 : 1; i > 0; i--) {
			out += "> " + FormatMessage(message) + "\n";
			cluster.DeliverOne(message);
		}
	}
}

//! Delivers until nothing is under way.
inline void Scenario::Stabilize(const Command &) {
	for (int budget = 10000; !cluster.network.empty(); budget--) {
		REQUIRE(budget > 0);
		auto message = cluster.network.front();
		cluster.network.pop_front();
		out += "> " + FormatMessage(message) + "\n";
		cluster.DeliverOne(message);
	}
}

inline void Scenario::PrintStatus(NodeId node) {
	if (!cluster.IsUp(node)) {
		out += Number(node) + ": down\n";
		return;
	}
	auto status = cluster.Status(node);
	out += Number(node) + ": " + RoleName(status.role) + " t" + Number(status.term) +
	       " leader=" + Number(status.leader) + " commit=" + Number(status.commit_index) +
	       " applied=" + Number(status.applied_index) + " last=" + Number(status.last_index) +
	       " durable=" + Number(status.durable_index) + " " + FormatMembership(status.membership);
	if (status.role == Role::Leader) {
		out += status.lease_until <= cluster.now
		           ? " no-lease"
				   : " lease-left-ms=" + std::to_string((status.lease_until - cluster.now) / NS_PER_MS);
		if (status.transfer_in_progress) {
			out += " transfer-to=" + Number(status.transfer_target);
		}
	}
	out += status.is_quiet ? " quiet" : "";
	out += (status.pending_reads > 0 ? " reads=" + Number(status.pending_reads) : "") + "\n";
}

inline void Scenario::PrintProgress(NodeId node) {
	static const char *const STATES[] = {"probe", "replicate", "snapshot"};
	for (auto &row : cluster.Status(node).progress) {
		out += Number(row.node) + ": " + STATES[static_cast<size_t>(row.state)] + " match=" + Number(row.match) +
		       " next=" + Number(row.next) + " inflight=" + Number(row.inflight_messages) +
		       (row.is_learner ? " learner" : "") + (row.recent_active ? "" : " inactive") + "\n";
	}
}

inline void Scenario::PrintLog(NodeId node) {
	auto &log = cluster.At(node).log;
	out += Number(node) + ": ";
	if (log.start_index > 0) {
		out += "starts after " + Number(log.start_index) + "/" + Number(log.start_term) + " ";
	}
	out += FormatEntries(log.entries) + "\n";
}

} // namespace testing
} // namespace raft
} // namespace quack
