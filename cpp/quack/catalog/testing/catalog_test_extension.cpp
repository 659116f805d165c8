//! Test-only loadable extension: a replica inside any DuckDB process, over the loopback engine. One SQL scalar function
//! drives it: quack_test(text) -> VARCHAR, where text is a command and its arguments with U+001F between them.
#include <cstdlib>

#include "duckdb.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/function/scalar_function.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "quack/catalog/change_functions.hpp"
#include "quack/catalog/placement_statements.hpp"
#include "quack/catalog/placements.hpp"
#include "quack/catalog/effects.hpp"
#include "quack/catalog/replicated_database.hpp"
#include "quack/catalog/testing/loopback_engine.hpp"

namespace quack {
namespace catalog {
namespace {

struct Replica {
	std::unique_ptr<ReplicatedDatabase> database;
	std::unique_ptr<LoopbackEngine> engine;
	std::shared_ptr<LoopbackLog> log;
};

std::mutex replicas_lock;
//! Never destroyed: a process may exit with replicas open.
auto &replicas = *new std::map<duckdb::DatabaseInstance *, std::shared_ptr<Replica>>();

using Arguments = std::vector<std::string>;

std::shared_ptr<Replica> Find(duckdb::ClientContext &context) {
	std::lock_guard<std::mutex> guard(replicas_lock);
	auto found = replicas.find(context.db.get());
	if (found == replicas.end()) {
		throw duckdb::InvalidInputException("no replica is open; call quack_test('open' ...) first");
	}
	return found->second;
}

std::string Check(const Status &status) {
	if (!status.IsOk()) {
		throw duckdb::InvalidInputException(status.ToString());
	}
	return "ok";
}

std::string At(const Arguments &arguments, size_t index) {
	return index < arguments.size() ? arguments[index] : std::string();
}

//! open, path, log name, node id [, log file [, cluster id [, entries per Apply, 0 = default
//! [, milliseconds that a checkpoint is patient with an open transaction
//! [, milliseconds between marks of this node, 0 = never [, voters with commas between [, 1 = it leads
//! [, bytes above which a transaction is split, 0 = default [, milliseconds until an idle stream is given up,
//! 0 = default]]]]]]]]]
std::string Open(duckdb::ClientContext &context, const Arguments &arguments) {
	auto replica = std::make_shared<Replica>();
	ReplicaOptions options;
	options.path = At(arguments, 1);
	options.node_id = At(arguments, 3);
	options.cluster_id = arguments.size() > 5 ? arguments[5] : "test-cluster";
	auto patience_ms = std::strtoll(At(arguments, 7).c_str(), nullptr, 10);
	options.checkpoint_writer_patience = (patience_ms == 0 ? 200 : patience_ms) * NS_PER_MS;
	options.checkpoint_reader_patience = (patience_ms == 0 ? 1000 : patience_ms) * NS_PER_MS;
	options.member = std::hash<std::string>()(options.node_id);
	options.checksum_interval = std::strtoll(At(arguments, 8).c_str(), nullptr, 10) * NS_PER_MS;
	if (auto split_bytes = std::strtoull(At(arguments, 11).c_str(), nullptr, 10)) {
		options.split_bytes = split_bytes;
	}
	if (auto stream_ms = std::strtoll(At(arguments, 12).c_str(), nullptr, 10)) {
		options.stream_patience = stream_ms * NS_PER_MS;
	}
	replica->log = LoopbackLog::Named(At(arguments, 2), At(arguments, 4));
	auto database = ReplicatedDatabase::Open(*context.db, options);
	if (!database.IsOk()) {
		return Check(database.GetStatus());
	}
	replica->database = std::move(database.Value());
	replica->engine = std::make_unique<LoopbackEngine>(*replica->database, replica->log, options.node_id);
	replica->database->SetEngine(replica->engine.get());
	replica->engine->SetGroup(duckdb::StringUtil::Split(At(arguments, 9), ','), At(arguments, 10) == "1");
	if (auto batch = int(std::strtol(At(arguments, 6).c_str(), nullptr, 10))) {
		replica->engine->SetBatch(size_t(batch));
	}
	std::lock_guard<std::mutex> guard(replicas_lock);
	replicas[context.db.get()] = replica;
	return Check(replica->engine->Start());
}

std::string Close(duckdb::ClientContext &context) {
	auto replica = Find(context);
	replica->engine->Stop(NS_PER_SECOND);
	replica->database->Close();
	std::lock_guard<std::mutex> guard(replicas_lock);
	replicas.erase(context.db.get());
	return "ok";
}

std::string Hash(Replica &replica) {
	auto rows = replica.database->StateHash();
	if (!rows.IsOk()) {
		return Check(rows.GetStatus());
	}
	std::string text;
	for (auto &row : rows.Value()) {
		text += row.schema + "|" + row.object + "|" + row.type + "|" + std::to_string(row.rows) + "|" + row.hash + "|" +
		        std::to_string(row.applied_index) + "\n";
	}
	return text;
}

std::string Statistics(Replica &replica) {
	auto s = replica.database->Statistics();
	return std::to_string(s.entries_applied) + "|" + std::to_string(s.entries_rejected) + "|" +
	       std::to_string(s.rows_applied) + "|" + std::to_string(s.transactions_applied) + "|" +
	       std::to_string(s.local_evictions) + "|" + std::to_string(s.checkpoints);
}

std::string LastCommit(duckdb::ClientContext &context) {
	auto commit = SessionState::Get(context).LastCommit();
	if (!commit) {
		return "none";
	}
	return std::string(ErrorCodeName(commit->status.Code())) + "|" + RequestIdToString(commit->request_id) + "|" +
	       std::to_string(commit->index);
}

std::string Outcome(Replica &replica, const std::string &text) {
	auto id = RequestIdFromString(text);
	if (!id.IsOk()) {
		return Check(id.GetStatus());
	}
	auto outcome = replica.database->Outcome(id.Value());
	return outcome ? ErrorCodeName(outcome->status.Code()) : "unremembered";
}

//! As quack_transaction_outcome asks: what is not in the log yet never commits afterwards.
std::string Resolve(Replica &replica, const std::string &text) {
	auto id = RequestIdFromString(text);
	if (!id.IsOk()) {
		return Check(id.GetStatus());
	}
	auto deadline = SystemClock().Now() + 60 * NS_PER_SECOND;
	auto outcome = replica.database->ResolveOutcome(id.Value(), RequestBase(id.Value()), deadline);
	return ErrorCodeName(outcome.status.Code());
}

//! Entries without effects; the index of the last one.
std::string AppendNoOps(Replica &replica, const std::string &count) {
	raft::LogIndex index = 0;
	for (auto left = count.empty() ? 1 : std::strtol(count.c_str(), nullptr, 10); left > 0; left--) {
		index = replica.log->Append(MakeSharedBytes(""), raft::EntryType::NoOp);
	}
	return std::to_string(index);
}

std::string SetConsistency(duckdb::ClientContext &context, const std::string &name) {
	SessionState::Get(context).SetConsistency(name == "linearizable" ? Consistency::Linearizable
	                                          : name == "eventual"   ? Consistency::Eventual
	                                                                 : Consistency::Session);
	return "ok";
}

std::string SetTimeout(duckdb::ClientContext &context, const std::string &milliseconds) {
	auto ms = std::strtoll(milliseconds.c_str(), nullptr, 10);
	SessionState::Get(context).SetDeadline(ms == 0 ? 0 : SystemClock().Now() + ms * NS_PER_MS);
	return "ok";
}

std::string SetRequest(duckdb::ClientContext &context, const std::string &text) {
	auto id = RequestIdFromString(text);
	if (!id.IsOk()) {
		return Check(id.GetStatus());
	}
	SessionState::Get(context).SetNextRequestId(id.Value(), RequestBase(id.Value()));
	return "ok";
}

//! Copies a snapshot to a file: what a peer would fetch.
std::string SaveSnapshot(Replica &replica, const std::string &path) {
	auto image = replica.database->OpenSnapshot();
	if (!image.IsOk()) {
		return Check(image.GetStatus());
	}
	auto *out = fopen(path.c_str(), "wb");
	QUACK_CHECK(out != nullptr, path.c_str());
	for (uint64_t offset = 0; offset < image.Value()->Bytes();) {
		auto part = image.Value()->Read(offset, 1 << 20);
		QUACK_CHECK(part.IsOk() && fwrite(part.Value().data(), 1, part.Value().size(), out) == part.Value().size(),
		            "copying a snapshot");
		offset += part.Value().size();
	}
	fclose(out);
	uint64_t index = 0;
	for (auto &position : image.Value()->Positions()) {
		index = position.index;
	}
	return std::to_string(index);
}

std::string Positions(const std::vector<node::AppliedPosition> &positions) {
	return positions.empty() ? "0" : std::to_string(positions[0].index);
}

std::string WaitApplied(Replica &replica) {
	auto status = replica.engine->WaitApplied(raft::ROOT_GROUP, replica.log->LastIndex(), 60 * NS_PER_SECOND);
	for (auto &group : replica.database->Groups()) {
		if (status.IsOk()) {
			status = replica.engine->WaitApplied(group.id, replica.log->LastIndex(group.id), 60 * NS_PER_SECOND);
		}
	}
	return Check(status);
}

//! As the leader's audit does it; the index.
std::string AppendMark(Replica &replica) {
	EffectWriter effects;
	effects.AddChecksum(std::string());
	EntryHeader header;
	header.base_index = replica.log->LastIndex();
	header.request_id = NewRequestId(header.base_index);
	header.snapshot_index = header.base_index;
	return std::to_string(replica.log->Append(MakeSharedBytes(effects.Finish(header))));
}

std::string Streams(Replica &replica) {
	auto statistics = replica.database->Statistics();
	return std::to_string(statistics.open_streams) + "|" + std::to_string(statistics.open_stream_bytes);
}

//! Digit repeated to an id.
RequestId IdOf(const std::string &digit) {
	RequestId id {};
	id.fill(uint8_t(std::strtol(digit.c_str(), nullptr, 10)));
	return id;
}

//! A fragment that no capture made; its index.
//! fragment, digit of the request, digit of the stream, sequence, text
std::string AppendFragment(Replica &replica, const Arguments &arguments) {
	EffectWriter effects;
	EntryHeader header;
	header.base_index = replica.log->LastIndex();
	header.request_id = IdOf(At(arguments, 1));
	header.snapshot_index = header.base_index;
	header.planned_version = replica.database->CatalogVersion();
	Fragment fragment;
	fragment.stream = IdOf(At(arguments, 2));
	fragment.sequence = uint32_t(std::strtoul(At(arguments, 3).c_str(), nullptr, 10));
	auto text = At(arguments, 4);
	fragment.bytes = text;
	effects.AddFragment(fragment);
	return std::to_string(replica.log->Append(MakeSharedBytes(effects.Finish(header))));
}

//! The entry at `index` once more, at the end; its new index.
std::string RepeatEntry(Replica &replica, const std::string &index) {
	auto number = std::strtoull(index.c_str(), nullptr, 10);
	auto entries = replica.log->Read(raft::ROOT_GROUP, number - 1, 1);
	return std::to_string(replica.log->Append(entries.at(0).payload, entries.at(0).type));
}

//! Any bytes, as hex digits, as an entry; its index.
std::string AppendRaw(Replica &replica, const std::string &hex) {
	std::string payload;
	for (size_t i = 0; i + 1 < hex.size(); i += 2) {
		payload += char(std::strtol(hex.substr(i, 2).c_str(), nullptr, 16));
	}
	return std::to_string(replica.log->Append(MakeSharedBytes(std::move(payload))));
}

std::string Checksums(Replica &replica) {
	std::string text;
	for (auto &row : replica.database->Checksums()) {
		text += std::to_string(row.index) + "|" + row.node_id + "|" + row.hash.object + "|" + row.hash.hash + "|" +
		        row.verdict + "|" + row.reason + "\n";
	}
	return text;
}

std::string GroupsText(Replica &replica) {
	auto placements = replica.database->GetPlacements();
	std::string text;
	for (auto &table : placements->Tables()) {
		auto name = table.first;
		std::replace(name.begin(), name.end(), '\0', '.');
		text += name + "|";
		for (auto group : table.second.AllGroups()) {
			text += placements->NameOf(group) + ",";
		}
		text += "|" + std::to_string(table.second.epoch) + "\n";
	}
	for (auto &group : placements->Groups()) {
		text += "group|" + std::to_string(group.first) + "|" + group.second.name + "\n";
	}
	return text;
}

//! retention, then per group: group|bytes|oldest|applied
std::string ChangesText(Replica &replica) {
	auto status = replica.database->ChangesStatus();
	auto text = std::to_string(status.retention) + "\n";
	for (auto &group : status.groups) {
		text += std::to_string(group.group) + "|" + std::to_string(group.bytes) + "|" + std::to_string(group.oldest) +
		        "|" + std::to_string(group.applied) + "\n";
	}
	return text;
}

//! Empty when the command is another one.
std::optional<std::string> RunOnGroups(Replica &replica, const Arguments &arguments) {
	auto &command = arguments[0];
	if (command == "multiraft") {
		return Check(
		    replica.database->SetMultiraftSql(At(arguments, 1) == "on", SystemClock().Now() + 10 * NS_PER_SECOND));
	}
	if (command == "retention") {
		auto bytes = std::strtoull(At(arguments, 1).c_str(), nullptr, 10);
		return Check(replica.database->SetChangesRetention(bytes, SystemClock().Now() + 10 * NS_PER_SECOND));
	}
	if (command == "changes") {
		return ChangesText(replica);
	}
	if (command == "hold_back") {
		std::set<raft::GroupId> groups;
		for (auto &group : duckdb::StringUtil::Split(At(arguments, 1), ',')) {
			groups.insert(std::strtoull(group.c_str(), nullptr, 10));
		}
		replica.engine->HoldBack(std::move(groups), std::strtoull(At(arguments, 2).c_str(), nullptr, 10));
		return "ok";
	}
	if (command == "groups") {
		return GroupsText(replica);
	}
	return std::nullopt;
}

//! Puts something into the log; empty when the command is another one.
std::optional<std::string> RunOnLog(Replica &replica, const Arguments &arguments) {
	auto &command = arguments[0];
	if (command == "noop") {
		return AppendNoOps(replica, At(arguments, 1));
	}
	if (command == "fragment") {
		return AppendFragment(replica, arguments);
	}
	if (command == "repeat") {
		return RepeatEntry(replica, At(arguments, 1));
	}
	if (command == "mark") {
		return AppendMark(replica);
	}
	if (command == "append") {
		return AppendRaw(replica, At(arguments, 1));
	}
	return std::nullopt;
}

std::string RunOnReplica(Replica &replica, const Arguments &arguments) {
	if (auto answer = RunOnLog(replica, arguments)) {
		return *answer;
	}
	if (auto answer = RunOnGroups(replica, arguments)) {
		return *answer;
	}
	auto &command = arguments[0];
	if (command == "hash") {
		return Hash(replica);
	}
	if (command == "stats") {
		return Statistics(replica);
	}
	if (command == "outcome") {
		return Outcome(replica, At(arguments, 1));
	}
	if (command == "resolve") {
		return Resolve(replica, At(arguments, 1));
	}
	if (command == "checkpoint") {
		return Check(replica.engine->OnApplyThread([&]() { return replica.database->Checkpoint(); }));
	}
	if (command == "snapshot") {
		return SaveSnapshot(replica, At(arguments, 1));
	}
	if (command == "install") {
		return Check(
		    replica.engine->OnApplyThread([&]() { return replica.database->InstallSnapshot(At(arguments, 1)); }));
	}
	if (command == "applied") {
		return Positions(replica.database->Applied());
	}
	if (command == "durable") {
		return Positions(replica.database->Durable());
	}
	if (command == "wait") {
		return WaitApplied(replica);
	}
	if (command == "pause" || command == "resume") {
		replica.engine->SetPaused(command == "pause");
		return "ok";
	}
	if (command == "fault") {
		replica.engine->InjectFault(At(arguments, 1), int(std::strtol(At(arguments, 2).c_str(), nullptr, 10)),
		                            int(std::strtol(At(arguments, 3).c_str(), nullptr, 10)));
		return "ok";
	}
	if (command == "waiting") {
		return std::to_string(replica.database->Statistics().waiting_commits);
	}
	if (command == "streams") {
		return Streams(replica);
	}
	if (command == "checksums") {
		return Checksums(replica);
	}
	if (command == "degrade") {
		replica.engine->LatchDegraded(At(arguments, 1));
		return "ok";
	}
	if (command == "degraded") {
		return replica.engine->GetStatus()[0].reason;
	}
	throw duckdb::InvalidInputException("quack_test: unknown command '%s'", command);
}

std::string Run(duckdb::ClientContext &context, const Arguments &arguments) {
	auto &command = arguments[0];
	if (command == "open") {
		return Open(context, arguments);
	}
	if (command == "close") {
		return Close(context);
	}
	if (command == "last_commit") {
		return LastCommit(context);
	}
	if (command == "consistency") {
		return SetConsistency(context, At(arguments, 1));
	}
	if (command == "timeout") {
		return SetTimeout(context, At(arguments, 1));
	}
	if (command == "request") {
		return SetRequest(context, At(arguments, 1));
	}
	if (command == "doomed") {
		return SessionState::Get(context).Doomed().ToString();
	}
	return RunOnReplica(*Find(context), arguments);
}

void TestFunction(duckdb::DataChunk &input, duckdb::ExpressionState &state, duckdb::Vector &result) {
	for (duckdb::idx_t row = 0; row < input.size(); row++) {
		Arguments arguments;
		for (auto &part : duckdb::StringUtil::Split(input.GetValue(0, row).ToString(), '\x1f')) {
			arguments.push_back(part);
		}
		result.SetValue(row, duckdb::Value(Run(state.GetContext(), arguments)));
	}
}

void Load(duckdb::ExtensionLoader &loader) {
	RegisterReplicaStorage(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()));
	RegisterPlacementStatements(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()), {});
	RegisterChangeFunctions(loader, {});
	duckdb::ScalarFunction function("quack_test", {duckdb::LogicalType::VARCHAR}, duckdb::LogicalType::VARCHAR,
	                                TestFunction);
	function.SetVolatile();
	function.SetFallible();
	loader.RegisterFunction(function);
}

} // namespace
} // namespace catalog
} // namespace quack

extern "C" {
// The trampoline looks for this name in every implementation.
DUCKDB_CPP_EXTENSION_ENTRY(quack, loader) {
	quack::catalog::Load(loader);
}
}
