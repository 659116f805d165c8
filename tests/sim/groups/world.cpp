#include "sim/groups/world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>

#include "quack/common/crc32c.hpp"
#include "sim/groups/parts.hpp"

namespace quack {
namespace sim {
namespace groups {
namespace {

constexpr uint64_t STEPS = 900;
//! After the faults have ended everything must come to rest within so many steps.
constexpr uint64_t STEPS_TO_REST = 4000;
constexpr size_t NODES = 3;
constexpr uint64_t ACCOUNTS = 8;
constexpr int64_t OPENING = 1000;
constexpr uint64_t NOTES = 6;
constexpr size_t SESSIONS_MAX = 6;
constexpr uint64_t REPEAT_STEPS = 25;
constexpr MonotonicNs FINISH_PATIENCE = 80;
constexpr MonotonicNs FINISH_GRACE = 20;
constexpr MonotonicNs FINISH_REPEAT = 30;
const char *const TABLES[] = {"accounts", "moves", "notes"};

class World {
public:
	World(uint64_t seed_p, const Sabotage &sabotage_p, bool trace_p)
	    : random(seed_p), weather(random), sabotage(sabotage_p), trace(trace_p) {
		nodes.resize(NODES);
		for (auto &node : nodes) {
			node.machine = std::make_unique<Machine>(sabotage);
			for (auto *table : TABLES) {
				node.machine->Create(table);
			}
			for (uint64_t account = 0; account < ACCOUNTS; account++) {
				node.machine->tables.at("accounts").rows[account] = {OPENING, 0, 1};
			}
			node.machine->applied[raft::ROOT_GROUP] = 0;
			node.saved = std::make_unique<Machine>(*node.machine);
			Begin(node);
		}
		logs[raft::ROOT_GROUP];
	}

	RunResult Run() {
		for (now = 1; now <= STEPS && result.violation.empty(); now++) {
			Strike();
			Step();
		}
		is_calm = true;
		for (; now <= STEPS + STEPS_TO_REST && result.violation.empty() && !IsAtRest(); now++) {
			Step();
		}
		if (result.violation.empty() && !IsAtRest()) {
			Violate("liveness", "not at rest long after the faults: " + Unrest());
		}
		if (result.violation.empty()) {
			CheckEnd();
		}
		return std::move(result);
	}

private:
	bool Happens(uint64_t thousandths) {
		return !is_calm && random.Below(1000) < thousandths;
	}
	void Note(const std::string &words) {
		result.trace_hash = result.trace_hash * 0x100000001b3ULL ^ Crc32c(words);
		if (trace) {
			std::fprintf(stderr, "%5llu %s\n", static_cast<unsigned long long>(now), words.c_str());
		}
	}
	void Violate(const std::string &checker, const std::string &words) {
		if (result.violation.empty()) {
			result.violation = checker + ": " + words;
			Note("VIOLATION " + result.violation);
		}
	}
	static std::string Name(size_t node) {
		return "n" + std::to_string(node);
	}

	//! A process starts from its state.
	void Begin(Node &node) {
		auto *machine = node.machine.get();
		node::ApplyOrder::Limits limits;
		limits.entries_max = static_cast<size_t>(weather.batch);
		node.order = std::make_unique<node::ApplyOrder>(limits, [machine](const node::CommittedEntry &entry) {
			return machine->Needs(entry);
		});
		node.finisher = std::make_unique<node::TransactionFinisher>(FINISH_PATIENCE, FINISH_GRACE, FINISH_REPEAT);
		node.delivered.clear();
		Adopt(node);
	}
	//! The machine's state was replaced.
	void Adopt(Node &node) {
		node.order->SetApplied(node.machine->Positions());
		node.order->SetGroups(node.machine->Definitions());
		node.groups_version = node.machine->placements.GroupsVersion();
		for (auto &position : node.machine->applied) {
			auto &delivered = node.delivered[position.first];
			delivered = std::max(delivered, position.second);
		}
	}

	void Strike() {
		for (size_t i = 0; i < nodes.size(); i++) {
			auto &node = nodes[i];
			if (node.down_until != 0) {
				continue;
			}
			if (Happens(weather.checkpoint)) {
				node.saved = std::make_unique<Machine>(*node.machine);
			}
			if (Happens(weather.crash)) {
				Crash(i);
			} else if (Happens(weather.image)) {
				Install(i);
			}
		}
		for (auto &log : logs) {
			if (Happens(weather.leader)) {
				auto leader = random.Below(NODES + 1); // NODES: none
				leaders[log.first] = leader;
				result.coverage.leader_changes++;
				Note("group " + std::to_string(log.first) + " is led by " + Name(leader));
				if (leader < NODES) {
					nodes[leader].machine->OnLeaderChange(log.first);
				}
			}
		}
		for (auto &session : sessions) {
			if (Happens(weather.death)) {
				Lose(session);
			} else if (session.driver && Happens(weather.give_up) && session.driver->GiveUp()) {
				result.coverage.given_up++;
				Note("attempt " + std::to_string(session.attempt) + " gives up");
				TakeProposals(session);
			}
		}
	}

	void Crash(size_t i) {
		auto &node = nodes[i];
		result.coverage.crashes++;
		node.down_until = now + 1 + random.Below(120);
		Note(Name(i) + " crashes");
		for (auto &session : sessions) {
			if (session.node == i && !session.is_done) {
				Ask(session);
				session.is_done = true;
			}
		}
		for (auto &inquiry : inquiries) {
			if (inquiry.node == i) {
				Restart(inquiry);
			}
		}
		node.machine = std::make_unique<Machine>(*node.saved);
		Begin(node);
	}

	//! Of a node that has applied all that this one has.
	void Install(size_t i) {
		auto &node = nodes[i];
		auto &source = nodes[random.Below(NODES)];
		for (auto &position : node.machine->applied) {
			auto theirs = source.machine->applied.find(position.first);
			if (theirs == source.machine->applied.end() || theirs->second < position.second) {
				return;
			}
		}
		if (&source == &node || source.down_until != 0) {
			return;
		}
		result.coverage.images++;
		Note(Name(i) + " installs an image");
		*node.machine = *source.machine;
		node.saved = std::make_unique<Machine>(*node.machine);
		Adopt(node);
	}

	//! The client hears nothing more; the session itself may go on.
	void Lose(Session &session) {
		if (session.is_done || session.is_orphan) {
			return;
		}
		result.coverage.sessions_lost++;
		Ask(session);
		session.is_orphan = true;
		session.is_done = random.Below(2) == 0;
		Note("attempt " + std::to_string(session.attempt) + " loses its client" + (session.is_done ? " and ends" : ""));
	}

	void Ask(const Session &session) {
		if (session.is_orphan) {
			return;
		}
		Inquiry inquiry;
		inquiry.operation = session.operation;
		inquiry.attempt = session.attempt;
		inquiry.id = session.id;
		Restart(inquiry);
		inquiries.push_back(std::move(inquiry));
	}

	void Restart(Inquiry &inquiry) {
		inquiry.node = random.Below(NODES);
		inquiry.is_root_known = false;
		inquiry.pending = {{raft::ROOT_GROUP, false, VoidEntry(inquiry.id), now + random.Below(40)}};
	}

	static SharedBytes VoidEntry(const TransactionId &id) {
		Body body;
		body.id = id;
		return MakeSharedBytes(EncodeData(body));
	}

	void Step() {
		for (size_t i = 0; i < nodes.size(); i++) {
			if (nodes[i].down_until != 0 && (nodes[i].down_until <= now || is_calm)) {
				nodes[i].down_until = 0;
				Note(Name(i) + " starts");
			}
		}
		Append();
		for (size_t i = 0; i < nodes.size(); i++) {
			if (nodes[i].down_until == 0) {
				Deliver(i);
				Apply(i);
				Finish(i);
			}
		}
		for (auto &session : sessions) {
			StepSession(session);
		}
		for (auto &inquiry : inquiries) {
			StepInquiry(inquiry);
		}
		auto session_done = [](const Session &session) {
			return session.is_done;
		};
		sessions.erase(std::remove_if(sessions.begin(), sessions.end(), session_done), sessions.end());
		auto inquiry_done = [](const Inquiry &inquiry) {
			return inquiry.is_done;
		};
		inquiries.erase(std::remove_if(inquiries.begin(), inquiries.end(), inquiry_done), inquiries.end());
		std::vector<Operation> repeated;
		repeated.swap(again);
		for (auto &operation : repeated) {
			Start(std::move(operation));
		}
		if (!is_calm && sessions.size() < SESSIONS_MAX && random.Below(3) == 0) {
			Start(Draw());
		}
	}

	Operation Draw() {
		Operation operation;
		operation.number = ++operations;
		if (Happens(weather.ddl)) {
			operation.table = TABLES[random.Below(3)];
			operation.kind = random.Below(3) == 0 ? Operation::Kind::Alter : Operation::Kind::Place;
			const uint32_t counts[] = {0, 1, 2, 4, 8};
			operation.group_count = counts[random.Below(5)];
			operation.group_name = operation.group_count == 1 ? "pinned-" + std::to_string(random.Below(6)) : "";
			return operation;
		}
		if (random.Below(4) == 0) {
			operation.kind = Operation::Kind::Note;
			operation.from = random.Below(NOTES);
			return operation;
		}
		operation.from = random.Below(ACCOUNTS);
		operation.to = (operation.from + 1 + random.Below(ACCOUNTS - 1)) % ACCOUNTS;
		operation.amount = static_cast<int64_t>(1 + random.Below(20));
		return operation;
	}

	//! Executes the operation on a node's present state and begins to commit.
	void Start(Operation operation) {
		auto i = random.Below(NODES);
		if (nodes[i].down_until != 0) {
			if (operation.attempts != 0) {
				again.push_back(std::move(operation));
			}
			return;
		}
		auto &machine = *nodes[i].machine;
		operation.attempts++;
		Session session;
		session.node = i;
		session.attempt = ++attempts;
		memcpy(session.id.data(), &attempts, sizeof(attempts));
		session.operation = operation;
		transfers[session.attempt].operation = operation;
		auto parts = Plan(machine, operation, session.attempt);
		if (parts.empty()) {
			return;
		}
		Note("attempt " + std::to_string(session.attempt) + " of " + std::to_string(operation.number) + " on " +
		     Name(i) + " in " + std::to_string(parts.size()) + " groups");
		std::vector<node::TransactionPart> encoded;
		for (auto &part : parts) {
			Body body {session.id, machine.catalog_version, std::move(part.second)};
			encoded.push_back({part.first, {}, EncodeData(body)});
		}
		if (encoded.size() == 1) {
			session.coordinator = encoded[0].group;
			session.pending = {{encoded[0].group, false, MakeSharedBytes(std::move(encoded[0].body)), now}};
		} else {
			result.coverage.over_groups += operation.kind == Operation::Kind::Transfer ? 1 : 0;
			session.driver = std::make_unique<node::TransactionDriver>(session.id, machine.catalog_version,
			                                                           std::move(encoded), operation.attempts > 1);
			session.coordinator = session.driver->Coordinator();
			TakeProposals(session);
		}
		sessions.push_back(std::move(session));
	}

	//! Effects by group.
	std::map<GroupId, std::vector<Effect>> Plan(const Machine &machine, const Operation &operation, uint64_t attempt) {
		std::map<GroupId, std::vector<Effect>> parts;
		auto add = [&](Effect effect) {
			auto group = machine.GroupOf(effect.table, effect.key);
			parts[group].push_back(std::move(effect));
		};
		auto change = [&](uint64_t account, int64_t amount) {
			Effect effect;
			effect.kind = EffectKind::Update;
			effect.table = "accounts";
			effect.key = account;
			effect.before = machine.tables.at("accounts").rows.at(account);
			effect.after = {effect.before.value + amount, effect.before.version + 1,
			                machine.tables.at("accounts").columns};
			add(std::move(effect));
		};
		Effect effect;
		switch (operation.kind) {
		case Operation::Kind::Transfer:
			change(operation.from, -operation.amount);
			change(operation.to, operation.amount);
			effect.kind = EffectKind::Insert;
			effect.table = "moves";
			effect.key = attempt;
			effect.after = {operation.amount, 0, machine.tables.at("moves").columns};
			add(std::move(effect));
			break;
		case Operation::Kind::Note: {
			auto &notes = machine.tables.at("notes");
			auto row = notes.rows.find(operation.from);
			effect.kind = row == notes.rows.end() ? EffectKind::Insert : EffectKind::Delete;
			effect.table = "notes";
			effect.key = operation.from;
			effect.before = row == notes.rows.end() ? Row() : row->second;
			effect.after = {static_cast<int64_t>(attempt), 0, notes.columns};
			add(std::move(effect));
			break;
		}
		default:
			effect.kind = operation.kind == Operation::Kind::Alter ? EffectKind::Alter : EffectKind::Place;
			effect.table = operation.table;
			effect.group_count = operation.group_count;
			effect.group_name = operation.group_name;
			auto lives = machine.placements.GroupsOf(operation.table);
			parts[raft::ROOT_GROUP].push_back(std::move(effect));
			for (auto group : lives) {
				if (group != raft::ROOT_GROUP && !sabotage.skip_fence) {
					Effect fence;
					fence.table = operation.table;
					parts[group].push_back(std::move(fence));
				}
			}
		}
		return parts;
	}

	void TakeProposals(Session &session) {
		for (auto &proposal : session.driver->TakeProposals()) {
			auto is_void = proposal.kind == node::TransactionProposal::Kind::Void;
			auto payload = is_void ? VoidEntry(session.id) : MakeSharedBytes(std::move(proposal.payload));
			if (session.driver->GetPhase() == node::TransactionDriver::Phase::Releasing) {
				Propose(proposal.group, payload);
				continue;
			}
			auto is_prepare = session.driver->GetPhase() == node::TransactionDriver::Phase::Preparing;
			session.pending.push_back({proposal.group, is_prepare && !is_void, std::move(payload), now});
		}
		if (session.driver->GetPhase() != node::TransactionDriver::Phase::Preparing) {
			auto is_prepare = [](const Pending &pending) {
				return pending.is_prepare;
			};
			session.pending.erase(std::remove_if(session.pending.begin(), session.pending.end(), is_prepare),
			                      session.pending.end());
		}
	}

	void StepSession(Session &session) {
		if (session.is_done) {
			return;
		}
		auto &machine = *nodes[session.node].machine;
		auto *outcome = machine.Find({session.coordinator, session.id});
		if (outcome != nullptr) {
			if (session.driver) {
				session.driver->OnDecided(outcome->index);
				TakeProposals(session);
			}
			session.is_done = true;
			if (!session.is_orphan) {
				Conclude(session.operation, session.attempt, outcome->IsOk());
			}
			return;
		}
		if (session.is_orphan && machine.Find({raft::ROOT_GROUP, session.id}) != nullptr) {
			session.is_done = true; // nothing is proposed under an id that is known as void
			return;
		}
		for (auto &pending : session.pending) {
			Repeat(pending);
		}
	}

	void OnPrepared(size_t i, GroupId group, const TransactionId &id, const Verdict &verdict) {
		for (auto &session : sessions) {
			if (session.node == i && session.id == id && session.driver && !session.is_done) {
				auto is_it = [group](const Pending &pending) {
					return pending.is_prepare && pending.group == group;
				};
				session.pending.erase(std::remove_if(session.pending.begin(), session.pending.end(), is_it),
				                      session.pending.end());
				session.driver->OnPrepared(group, verdict.index, verdict.IsOk());
				TakeProposals(session);
			}
		}
	}

	//! The root group first, then all that exist behind it (GROUPS.md, "Counting once").
	void StepInquiry(Inquiry &inquiry) {
		if (nodes[inquiry.node].down_until != 0) {
			return;
		}
		auto &machine = *nodes[inquiry.node].machine;
		auto *root = machine.Find({raft::ROOT_GROUP, inquiry.id});
		if (root != nullptr && !inquiry.is_root_known) {
			inquiry.is_root_known = true;
			inquiry.pending.clear();
			for (auto &group : machine.placements.Groups()) {
				inquiry.pending.push_back({group.first, false, VoidEntry(inquiry.id), now});
			}
		}
		auto is_committed = root != nullptr && root->IsOk();
		auto is_known = [&](const Pending &pending) {
			auto *outcome = machine.Find({pending.group, inquiry.id});
			is_committed = is_committed || (outcome != nullptr && outcome->IsOk());
			return outcome != nullptr;
		};
		auto known = std::remove_if(inquiry.pending.begin(), inquiry.pending.end(), is_known);
		inquiry.pending.erase(known, inquiry.pending.end());
		if (is_committed || (inquiry.is_root_known && inquiry.pending.empty())) {
			inquiry.is_done = true;
			(is_committed ? result.coverage.asked_committed : result.coverage.asked_refused)++;
			Conclude(inquiry.operation, inquiry.attempt, is_committed);
			return;
		}
		for (auto &pending : inquiry.pending) {
			Repeat(pending);
		}
	}

	//! The client knows.
	void Conclude(const Operation &operation, uint64_t attempt, bool is_committed) {
		Note("attempt " + std::to_string(attempt) + (is_committed ? " has committed" : " was refused"));
		transfers.at(attempt).told = is_committed ? Attempt::Told::Committed : Attempt::Told::Refused;
		if (!is_committed) {
			result.coverage.conflicts++;
			if (!is_calm) {
				again.push_back(operation);
			}
		}
	}

	void Repeat(Pending &pending) {
		if (pending.next_at <= now) {
			pending.next_at = now + REPEAT_STEPS;
			Propose(pending.group, pending.payload);
		}
	}

	void Propose(GroupId group, const SharedBytes &payload) {
		if (!Happens(weather.loss)) {
			proposals.push_back({now + 1 + random.Below(weather.delay), group, payload});
		}
		if (Happens(weather.copy)) {
			proposals.push_back({now + 1 + random.Below(40 * weather.delay), group, payload});
		}
	}

	//! What reaches a leader is committed.
	void Append() {
		std::vector<Proposal> later;
		for (auto &proposal : proposals) {
			auto leader = leaders.find(proposal.group);
			auto is_led =
			    leader == leaders.end() || is_calm || (leader->second < NODES && nodes[leader->second].down_until == 0);
			if (proposal.at > now) {
				later.push_back(std::move(proposal));
			} else if (is_led) {
				logs[proposal.group].push_back(proposal.payload);
			}
		}
		proposals = std::move(later);
	}

	void Deliver(size_t i) {
		auto &node = nodes[i];
		for (auto &log : logs) {
			auto is_known = log.first == raft::ROOT_GROUP || node.machine->placements.Find(log.first) != nullptr;
			auto &delivered = node.delivered[log.first];
			if (!is_known || delivered >= log.second.size() || (!is_calm && !Happens(weather.deliver))) {
				continue;
			}
			auto last = std::min<LogIndex>(log.second.size(), delivered + 1 + random.Below(5));
			std::vector<raft::Entry> entries;
			while (delivered < last) {
				raft::Entry entry;
				entry.term = 1;
				entry.payload = log.second[delivered];
				entry.index = ++delivered;
				entries.push_back(std::move(entry));
			}
			node.order->Push(log.first, std::move(entries));
		}
	}

	void Apply(size_t i) {
		auto &node = nodes[i];
		for (auto batch = node.order->Take(); !batch.Empty() && result.violation.empty(); batch = node.order->Take()) {
			for (auto &entry : batch.entries) {
				ApplyOne(i, entry);
			}
			if (node.machine->placements.GroupsVersion() != node.groups_version) {
				node.groups_version = node.machine->placements.GroupsVersion();
				node.order->SetGroups(node.machine->Definitions());
			}
		}
		for (auto &held : node.order->Waiting()) {
			result.coverage.waits += held.head ? 1 : 0;
		}
		auto status = node.order->Check();
		if (!status.IsOk()) {
			Violate("circle", Name(i) + ": " + status.Message());
		}
	}

	void ApplyOne(size_t i, const node::CommittedEntry &entry) {
		auto &machine = *nodes[i].machine;
		auto position = std::to_string(entry.group) + ":" + std::to_string(entry.entry.index);
		auto words = machine.Apply(entry, [&](GroupId group, const TransactionId &id, const Verdict &verdict) {
			OnPrepared(i, group, id, verdict);
		});
		Note(Name(i) + " applies " + position + " " + words);
		auto known = verdicts.emplace(std::make_pair(entry.group, entry.entry.index), words);
		if (!known.second && known.first->second != words) {
			Violate("agreement", "entry " + position + " came to \"" + words + "\" on " + Name(i) + " and to \"" +
			                         known.first->second + "\" elsewhere");
		}
		if (known.second && words == "committed") {
			Count(entry);
		}
		if (!machine.violation.empty()) {
			Violate("definition", Name(i) + ": " + machine.violation);
		}
		if (words == "committed" || words.rfind("prepared", 0) == 0) {
			CheckReader(i);
		}
	}

	//! For the coverage: what has committed.
	void Count(const node::CommittedEntry &entry) {
		auto is_transaction = node::IsTransactionEntry(*entry.entry.payload);
		auto body = is_transaction ? DecodeBody(node::DecodeTransactionEntry(*entry.entry.payload).Value().body)
		                           : DecodeBody(*entry.entry.payload);
		for (auto &effect : body.effects) {
			result.coverage.schema_changes += effect.kind == EffectKind::Alter ? 1 : 0;
			result.coverage.moves += effect.kind == EffectKind::Place ? 1 : 0;
			result.coverage.moves_over_groups += effect.kind == EffectKind::Place && is_transaction ? 1 : 0;
			result.coverage.transfers += effect.table == "accounts" && effect.kind == EffectKind::Update ? 1 : 0;
			result.coverage.rows_come_and_go += effect.table == "notes" && effect.key < NOTES ? 1 : 0;
		}
	}

	//! Whoever reads here now sees every transfer whole or not at all, and each change of an account once.
	void CheckReader(size_t i) {
		auto &tables = nodes[i].machine->tables;
		std::map<uint64_t, Row> expected;
		for (uint64_t account = 0; account < ACCOUNTS; account++) {
			expected[account] = {OPENING, 0, 0};
		}
		std::set<uint64_t> seen;
		for (auto &move : tables.at("moves").rows) {
			auto &operation = transfers.at(move.first).operation;
			if (!seen.insert(operation.number).second) {
				Violate("once", Name(i) + " has transfer " + std::to_string(operation.number) + " twice");
			}
			expected[operation.from].value -= operation.amount;
			expected[operation.from].version++;
			expected[operation.to].value += operation.amount;
			expected[operation.to].version++;
		}
		auto &accounts = tables.at("accounts").rows;
		for (auto &account : expected) {
			auto row = accounts.find(account.first);
			if (row == accounts.end() || row->second.value != account.second.value ||
			    row->second.version != account.second.version) {
				Violate("atomicity", Name(i) + " shows account " + std::to_string(account.first) +
				                         " otherwise than the transfers it shows: half of one, or a change lost");
				return;
			}
		}
	}

	void Finish(size_t i) {
		std::vector<node::PreparedAtLeader> parts;
		auto &machine = *nodes[i].machine;
		for (auto &part : machine.prepared.List()) {
			auto leader = leaders.find(part.group);
			auto leading = leader == leaders.end() || leader->second >= NODES ? 0 : leader->second;
			if (leading != i) {
				continue;
			}
			node::PreparedAtLeader at {part.group, part.id, part.index, part.coordinator, std::nullopt};
			if (auto *outcome = machine.Find({part.coordinator, part.id})) {
				at.decided = outcome->index;
			}
			parts.push_back(std::move(at));
		}
		for (auto &proposal : nodes[i].finisher->Step(static_cast<MonotonicNs>(now), parts)) {
			result.coverage.finished_by_leader++;
			auto is_void = proposal.proposal.kind == node::TransactionProposal::Kind::Void;
			Propose(proposal.proposal.group,
			        is_void ? VoidEntry(proposal.id) : MakeSharedBytes(std::move(proposal.proposal.payload)));
		}
	}

	bool IsAtRest() const {
		return Unrest().empty();
	}
	std::string Unrest() const {
		std::string words;
		words += sessions.empty() ? "" : std::to_string(sessions.size()) + " sessions ";
		words += inquiries.empty() ? "" : std::to_string(inquiries.size()) + " clients that ask ";
		words += proposals.empty() ? "" : "proposals underway ";
		for (size_t i = 0; i < nodes.size(); i++) {
			for (auto &log : logs) {
				auto &applied = nodes[i].machine->applied;
				auto position = applied.find(log.first);
				auto index = position == applied.end() ? 0 : position->second;
				if (index != log.second.size()) {
					words += Name(i) + " is at " + std::to_string(index) + " of " + std::to_string(log.second.size()) +
					         " in group " + std::to_string(log.first) + " ";
				}
			}
			auto parts = nodes[i].machine->prepared.Count();
			words += parts == 0 ? "" : Name(i) + " has " + std::to_string(parts) + " prepared parts ";
		}
		return words;
	}

	void CheckEnd() {
		auto state = nodes[0].machine->Dump();
		for (size_t i = 1; i < nodes.size(); i++) {
			if (nodes[i].machine->Dump() != state) {
				Violate("equality", Name(i) + " and n0 differ:\n" + state + "and\n" + nodes[i].machine->Dump());
			}
		}
		auto &moves = nodes[0].machine->tables.at("moves").rows;
		for (auto &transfer : transfers) {
			if (transfer.second.operation.kind != Operation::Kind::Transfer) {
				continue;
			}
			auto is_there = moves.count(transfer.first) != 0;
			if (transfer.second.told == Attempt::Told::Committed && !is_there) {
				Violate("durability",
				        "attempt " + std::to_string(transfer.first) + " was acknowledged and is not there");
			}
			if (transfer.second.told == Attempt::Told::Refused && is_there) {
				Violate("outcome", "attempt " + std::to_string(transfer.first) + " was refused and is there");
			}
		}
	}

	Prng random;
	const Weather weather;
	const Sabotage sabotage;
	const bool trace;
	bool is_calm = false;
	uint64_t now = 0;
	std::vector<Node> nodes;
	std::map<GroupId, std::vector<SharedBytes>> logs;
	//! Number of the node, or NODES; not there = the first node.
	std::map<GroupId, uint64_t> leaders;
	std::vector<Proposal> proposals;
	std::vector<Session> sessions;
	std::vector<Inquiry> inquiries;
	std::vector<Operation> again;
	uint64_t operations = 0;
	uint64_t attempts = 0;
	std::map<uint64_t, Attempt> transfers; //! by attempt
	std::map<std::pair<GroupId, LogIndex>, std::string> verdicts;
	RunResult result;
};

} // namespace

void Coverage::Add(const Coverage &other) {
	std::vector<uint64_t> values;
	Visit(other, [&values](const char *, uint64_t value) { values.push_back(value); });
	size_t next = 0;
	Visit(*this, [&](const char *, uint64_t &value) { value += values[next++]; });
}

RunResult RunSeed(uint64_t seed, const Sabotage &sabotage, bool trace) {
	return World(seed, sabotage, trace).Run();
}

} // namespace groups
} // namespace sim
} // namespace quack
