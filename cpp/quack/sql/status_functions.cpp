#include "quack/sql/functions.hpp"

#include <chrono>
#include <functional>
#include <map>

#include "duckdb/common/exception.hpp"
#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/function/function_set.hpp"
#include "quack/catalog/position_text.hpp"
#include "quack/sql/group_functions.hpp"
#include "quack/sql/node_runtime.hpp"
#include "quack/sql/remote_catalog.hpp"
#include "quack/sql/row_table.hpp"
#include "quack/sql/sql_error.hpp"
#include "quack/sql/attempt_walk.hpp"

namespace quack {
namespace sql {

using duckdb::LogicalType;
using duckdb::Value;

namespace {

//! A function whose rows are computed at once, on the node or, through an attached catalog, on its remote node.
struct StatusFunction {
	std::string name;
	Columns columns;
	std::function<Rows(NodeRuntime &, const duckdb::vector<Value> &)> rows;
	//! Instead of `rows`, for what needs no node.
	std::function<Rows()> own_rows;
	//! Arguments after the optional catalog name.
	duckdb::vector<LogicalType> arguments;
};

struct StatusFunctionInfo final : public duckdb::TableFunctionInfo {
	explicit StatusFunctionInfo(StatusFunction function_p) : function(std::move(function_p)) {
	}
	StatusFunction function;
};

struct StatusBindData final : public duckdb::TableFunctionData {
	const StatusFunction *function = nullptr; //! of the catalog's function, which outlives the query
	duckdb::vector<Value> arguments;
	std::string catalog; //! empty = this node
};

Value Text(const std::string &text) {
	return Value(text);
}

Value Unsigned(uint64_t value) {
	return Value::UBIGINT(value);
}

Value TextList(const std::vector<std::string> &list) {
	duckdb::vector<Value> values;
	for (auto &entry : list) {
		values.push_back(Value(entry));
	}
	return Value::LIST(LogicalType::VARCHAR, std::move(values));
}

//! Milliseconds since a moment on the monotonic clock; NULL when it never was.
Value Age(MonotonicNs then) {
	if (then == 0) {
		return Value(LogicalType::BIGINT);
	}
	return Value::BIGINT((SystemClock().Now() - then) / NS_PER_MS);
}

LogicalType PeerLagType() {
	return LogicalType::STRUCT({{"node_id", LogicalType::VARCHAR},
	                            {"match_index", LogicalType::UBIGINT},
	                            {"lag", LogicalType::UBIGINT},
	                            {"connected", LogicalType::BOOLEAN},
	                            {"state", LogicalType::VARCHAR},
	                            {"last_error", LogicalType::VARCHAR}});
}

Value PeerLags(const std::vector<node::PeerLag> &peers) {
	duckdb::vector<Value> values;
	for (auto &peer : peers) {
		values.push_back(Value::STRUCT({{"node_id", Text(peer.node_id)},
		                                {"match_index", Unsigned(peer.match)},
		                                {"lag", Unsigned(peer.lag)},
		                                {"connected", Value::BOOLEAN(peer.connected)},
		                                {"state", Text(peer.state)},
		                                {"last_error", Text(peer.last_error)}}));
	}
	return Value::LIST(PeerLagType(), std::move(values));
}

Row RaftStatusRow(const node::GroupStatus &group) {
	return {Text(group.cluster_id),
	        Text(group.group_name),
	        Text(group.node_id),
	        Text(group.role),
	        Unsigned(group.term),
	        Text(group.leader_id),
	        Value::BOOLEAN(group.is_leader),
	        TextList(group.voters),
	        TextList(group.learners),
	        Value::BOOLEAN(group.membership_change_in_progress),
	        Unsigned(group.commit_index),
	        Unsigned(group.applied_index),
	        Unsigned(group.last_log_index),
	        Unsigned(group.durable_index),
	        Unsigned(group.checkpoint_index),
	        PeerLags(group.peers),
	        Text(group.lease),
	        Value::BIGINT(group.lease_remaining_ms),
	        Value::BOOLEAN(group.linearizable_read_safe),
	        Value::BOOLEAN(group.degraded),
	        Text(group.reason),
	        Unsigned(group.proposal_queue_count),
	        Unsigned(group.proposal_queue_bytes),
	        Unsigned(group.apply_queue_count),
	        Unsigned(group.apply_queue_bytes),
	        Unsigned(group.log_disk_bytes),
	        Unsigned(group.snapshot_bytes_done),
	        Unsigned(group.snapshot_bytes_total)};
}

StatusFunction RaftStatusFunction() {
	StatusFunction function;
	function.name = "quack_raft_status";
	auto text = LogicalType::VARCHAR;
	auto number = LogicalType::UBIGINT;
	auto truth = LogicalType::BOOLEAN;
	function.columns = {{"cluster_id", text},
	                    {"group", text},
	                    {"node_id", text},
	                    {"role", text},
	                    {"term", number},
	                    {"leader_id", text},
	                    {"is_leader", truth},
	                    {"voters", LogicalType::LIST(text)},
	                    {"learners", LogicalType::LIST(text)},
	                    {"membership_change_in_progress", truth},
	                    {"commit_index", number},
	                    {"applied_index", number},
	                    {"last_log_index", number},
	                    {"durable_index", number},
	                    {"checkpoint_index", number},
	                    {"peers", LogicalType::LIST(PeerLagType())},
	                    {"lease", text},
	                    {"lease_remaining_ms", LogicalType::BIGINT},
	                    {"linearizable_read_safe", truth},
	                    {"degraded", truth},
	                    {"reason", text},
	                    {"proposal_queue_count", number},
	                    {"proposal_queue_bytes", number},
	                    {"apply_queue_count", number},
	                    {"apply_queue_bytes", number},
	                    {"log_disk_bytes", number},
	                    {"snapshot_bytes_done", number},
	                    {"snapshot_bytes_total", number}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		Rows rows;
		for (auto &group : runtime.Engine().GetStatus()) {
			rows.push_back(RaftStatusRow(group));
		}
		return rows;
	};
	return function;
}

StatusFunction StateHashFunction() {
	StatusFunction function;
	function.name = "quack_state_hash";
	function.columns = {{"schema", LogicalType::VARCHAR}, {"object", LogicalType::VARCHAR},
	                    {"type", LogicalType::VARCHAR},   {"rows", LogicalType::UBIGINT},
	                    {"hash", LogicalType::VARCHAR},   {"applied_index", LogicalType::UBIGINT}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		auto hashes = runtime.Replica().StateHash();
		if (!hashes.IsOk()) {
			ThrowCoded(hashes.GetStatus());
		}
		Rows rows;
		for (auto &hash : hashes.Value()) {
			rows.push_back({Text(hash.schema), Text(hash.object), Text(hash.type), Unsigned(hash.rows), Text(hash.hash),
			                Unsigned(hash.applied_index)});
		}
		return rows;
	};
	return function;
}

StatusFunction ChecksumsFunction() {
	StatusFunction function;
	function.name = "quack_checksums";
	function.columns = {{"log_index", LogicalType::UBIGINT}, {"group", LogicalType::VARCHAR},
	                    {"node_id", LogicalType::VARCHAR},   {"schema", LogicalType::VARCHAR},
	                    {"object", LogicalType::VARCHAR},    {"type", LogicalType::VARCHAR},
	                    {"rows", LogicalType::UBIGINT},      {"hash", LogicalType::VARCHAR},
	                    {"verdict", LogicalType::VARCHAR},   {"reason", LogicalType::VARCHAR}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		Rows rows;
		for (auto &row : runtime.Replica().Checksums()) {
			auto &hash = row.hash;
			rows.push_back({Unsigned(row.index), Text("root"), Text(row.node_id), Text(hash.schema), Text(hash.object),
			                Text(hash.type), hash.hash.empty() ? Value(LogicalType::UBIGINT) : Unsigned(hash.rows),
			                hash.hash.empty() ? Value(LogicalType::VARCHAR) : Text(hash.hash), Text(row.verdict),
			                Text(row.reason)});
		}
		return rows;
	};
	return function;
}

StatusFunction PeersFunction() {
	StatusFunction function;
	function.name = "quack_peers";
	function.columns = {{"node_id", LogicalType::VARCHAR},          {"address", LogicalType::VARCHAR},
	                    {"connected", LogicalType::BOOLEAN},        {"inbound_connected", LogicalType::BOOLEAN},
	                    {"dial_count", LogicalType::UBIGINT},       {"queue_bytes", LogicalType::UBIGINT},
	                    {"sent_messages", LogicalType::UBIGINT},    {"received_messages", LogicalType::UBIGINT},
	                    {"dropped_messages", LogicalType::UBIGINT}, {"last_receive_ms_ago", LogicalType::BIGINT},
	                    {"last_error", LogicalType::VARCHAR},       {"last_inbound_refusal", LogicalType::VARCHAR}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		Rows rows;
		for (auto &peer : runtime.GetTransport().GetPeers()) {
			rows.push_back({Text(peer.node_id), Text(peer.address), Value::BOOLEAN(peer.connected),
			                Value::BOOLEAN(peer.inbound_connected), Unsigned(peer.dial_count),
			                Unsigned(peer.queue_bytes), Unsigned(peer.sent_messages), Unsigned(peer.received_messages),
			                Unsigned(peer.dropped_messages), Age(peer.last_receive), Text(peer.last_error),
			                Text(peer.last_inbound_refusal)});
		}
		return rows;
	};
	return function;
}

StatusFunction MembersFunction() {
	StatusFunction function;
	function.name = "quack_members";
	function.columns = {{"node_id", LogicalType::VARCHAR},      {"incarnation", LogicalType::VARCHAR},
	                    {"address", LogicalType::VARCHAR},      {"role", LogicalType::VARCHAR},
	                    {"becomes", LogicalType::VARCHAR},      {"is_leader", LogicalType::BOOLEAN},
	                    {"connected", LogicalType::BOOLEAN},    {"match_index", LogicalType::UBIGINT},
	                    {"lag", LogicalType::UBIGINT},          {"state", LogicalType::VARCHAR},
	                    {"last_heard_ms", LogicalType::BIGINT}, {"last_error", LogicalType::VARCHAR}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		Rows rows;
		for (auto &member : runtime.Engine().GetMembers()) {
			rows.push_back({Text(member.node_id), Text(node::FormatIncarnation(member.incarnation)),
			                Text(member.host + ":" + std::to_string(member.port)), Text(member.role),
			                Text(member.becomes), Value::BOOLEAN(member.is_leader), Value::BOOLEAN(member.connected),
			                member.match ? Unsigned(*member.match) : Value(LogicalType::UBIGINT),
			                member.lag ? Unsigned(*member.lag) : Value(LogicalType::UBIGINT), Text(member.state),
			                member.last_heard_ms < 0 ? Value(LogicalType::BIGINT) : Value::BIGINT(member.last_heard_ms),
			                Text(member.last_error)});
		}
		return rows;
	};
	return function;
}

StatusFunction SnapshotTransfersFunction() {
	StatusFunction function;
	function.name = "quack_snapshot_transfers";
	function.columns = {{"node_id", LogicalType::VARCHAR},
	                    {"direction", LogicalType::VARCHAR},
	                    {"peer", LogicalType::VARCHAR},
	                    {"image", LogicalType::VARCHAR},
	                    {"state", LogicalType::VARCHAR},
	                    {"bytes_done", LogicalType::UBIGINT},
	                    {"bytes_total", LogicalType::UBIGINT},
	                    {"bytes_moved", LogicalType::UBIGINT},
	                    {"bytes_per_second", LogicalType::UBIGINT},
	                    {"seconds_left", LogicalType::BIGINT},
	                    {"resumed", LogicalType::UBIGINT}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		Rows rows;
		for (auto &transfer : runtime.Engine().GetSnapshotTransfers()) {
			rows.push_back(
			    {Text(runtime.Config().node_id), Text(transfer.is_sending ? "send" : "receive"),
				 transfer.peer.empty() ? Value(LogicalType::VARCHAR) : Text(transfer.peer),
				 transfer.image == 0 ? Value(LogicalType::VARCHAR) : Text(node::FormatIncarnation(transfer.image)),
				 Text(transfer.state), Unsigned(transfer.bytes_done), Unsigned(transfer.bytes_total),
				 Unsigned(transfer.bytes_moved), Unsigned(transfer.bytes_per_second),
				 transfer.seconds_left < 0 ? Value(LogicalType::BIGINT) : Value::BIGINT(transfer.seconds_left),
				 Unsigned(transfer.resumed_count)});
		}
		return rows;
	};
	return function;
}

StatusFunction RefusalsFunction() {
	StatusFunction function;
	function.name = "quack_connection_refusals";
	function.columns = {{"remote_address", LogicalType::VARCHAR},
	                    {"reason", LogicalType::VARCHAR},
	                    {"ms_ago", LogicalType::BIGINT}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		Rows rows;
		for (auto &refusal : runtime.GetTransport().GetRefusals()) {
			rows.push_back({Text(refusal.remote_address), Text(refusal.reason), Age(refusal.when)});
		}
		return rows;
	};
	return function;
}

constexpr MonotonicNs OUTCOME_TIMEOUT = 10 * NS_PER_SECOND;

//! Why the root group cannot decide anything now.
std::string RootReason(NodeRuntime &runtime) {
	for (auto &group : runtime.Engine().GetStatus()) {
		if (group.group == raft::ROOT_GROUP && !group.reason.empty()) {
			return group.reason;
		}
	}
	return "no answer in time";
}

StatusFunction SessionsFunction() {
	StatusFunction function;
	function.name = "quack_sessions";
	// The connection id itself is the capability to use the session: only its first digits are shown.
	function.columns = {{"session", LogicalType::VARCHAR},
	                    {"remote_address", LogicalType::VARCHAR},
	                    {"client_certificate", LogicalType::VARCHAR},
	                    {"client_version", LogicalType::VARCHAR},
	                    {"protocol_version", LogicalType::UBIGINT},
	                    {"state", LogicalType::VARCHAR},
	                    {"in_transaction", LogicalType::BOOLEAN},
	                    {"query", LogicalType::VARCHAR},
	                    {"query_running_ms", LogicalType::BIGINT},
	                    {"last_request_ms_ago", LogicalType::BIGINT},
	                    {"lease_s", LogicalType::UBIGINT},
	                    {"statements", LogicalType::UBIGINT},
	                    {"buffered_rows", LogicalType::UBIGINT},
	                    {"buffered_bytes", LogicalType::UBIGINT}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		Rows rows;
		for (auto &session : runtime.Server().Sessions().GetStatus()) {
			auto &info = session.info;
			rows.push_back({Text(info.id.substr(0, 8)), Text(info.remote_address), Text(info.peer_identity),
			                Text(info.client_version), Unsigned(static_cast<uint64_t>(info.version)),
			                Text(session.state), Value::BOOLEAN(session.in_transaction), Text(session.query),
			                Age(session.started), Age(session.last_request), Unsigned(info.lease_s),
			                Unsigned(session.statements), Unsigned(session.buffered_rows),
			                Unsigned(session.buffered_bytes)});
		}
		return rows;
	};
	return function;
}

//! Whoever keeps old row versions and the log from being freed, and the session that he belongs to.
StatusFunction OpenTransactionsFunction() {
	StatusFunction function;
	function.name = "quack_open_transactions";
	function.columns = {{"session", LogicalType::VARCHAR},
	                    {"remote_address", LogicalType::VARCHAR},
	                    {"connection", LogicalType::UBIGINT},
	                    {"kind", LogicalType::VARCHAR},
	                    {"open_ms", LogicalType::BIGINT},
	                    {"snapshot_index", LogicalType::UBIGINT},
	                    {"writes", LogicalType::LIST(LogicalType::VARCHAR)},
	                    {"holds_checkpoint", LogicalType::BOOLEAN}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		std::map<uint64_t, SessionInfo> sessions;
		for (auto &session : runtime.Server().Sessions().GetStatus()) {
			sessions.emplace(session.connection, session.info);
		}
		Rows rows;
		for (auto &open : runtime.Replica().Transactions()) {
			auto owner = sessions.find(open.connection);
			bool is_session = owner != sessions.end();
			rows.push_back({is_session ? Text(owner->second.id.substr(0, 8)) : Value(LogicalType::VARCHAR),
			                is_session ? Text(owner->second.remote_address) : Value(LogicalType::VARCHAR),
			                Unsigned(open.connection), Text(open.is_writer ? "writer" : "reader"), Age(open.opened_at),
			                Unsigned(open.snapshot_index), TextList(open.written),
			                Value::BOOLEAN(open.holds_checkpoint)});
		}
		return rows;
	};
	return function;
}

StatusFunction StatisticsFunction() {
	StatusFunction function;
	function.name = "quack_node_statistics";
	function.columns = {{"name", LogicalType::VARCHAR}, {"value", LogicalType::UBIGINT}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		auto replica = runtime.Replica().Statistics();
		auto log = runtime.GetLog().GetStatus();
		auto transport = runtime.GetTransport().GetTransportStatus();
		Rows rows;
		auto add = [&](const char *name, uint64_t value) {
			rows.push_back({Text(name), Unsigned(value)});
		};
		add("entries_applied", replica.entries_applied);
		add("entries_rejected", replica.entries_rejected);
		add("rows_applied", replica.rows_applied);
		add("transactions_applied", replica.transactions_applied);
		add("local_evictions", replica.local_evictions);
		add("waiting_commits", replica.waiting_commits);
		add("large_transactions_open", replica.open_streams);
		add("large_transaction_bytes", replica.open_stream_bytes);
		add("checkpoints", replica.checkpoints);
		add("checkpoint_last_ms", replica.checkpoint_last_ms);
		add("checkpoint_max_ms", replica.checkpoint_max_ms);
		add("checkpoints_postponed", replica.checkpoints_postponed);
		add("log_segments", log.segment_count);
		add("log_disk_bytes", log.disk_bytes);
		add("log_cached_bytes", log.cached_bytes);
		add("log_syncs", log.sync_count);
		add("log_appended_bytes", log.appended_bytes);
		add("log_torn_bytes", log.torn_bytes);
		add("foreign_conflicts", replica.foreign_conflicts);
		auto contention = runtime.Contention().GetStatus();
		auto admission = runtime.GetAdmission().GetStatus();
		auto &limits = runtime.Config().limits;
		add("statements", admission.statements);
		add("statements_max", limits.admission.statements_max);
		add("statements_refused", admission.statements_refused);
		add("buffer_bytes", admission.buffer_bytes);
		add("buffer_bytes_max", limits.admission.buffer_bytes_max);
		add("requests_refused", admission.requests_refused);
		add("retry_after_ms", admission.retry_after_ms);
		add("sessions_max", limits.sessions_max);
		add("client_connections_max", limits.connections_max);
		add("contention_conflicts", contention.conflicts);
		add("contention_turns", contention.turns);
		add("contention_waiting", contention.waiting);
		// For people who compare machines; nothing in the node depends on it.
		auto wall_clock = std::chrono::system_clock::now().time_since_epoch();
		add("wall_clock_ms",
		    static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(wall_clock).count()));
		add("sessions", runtime.Server().Sessions().Count());
		add("client_connections", runtime.Server().ConnectionCount());
		add("refused_connections", transport.refused_connections);
		add("certificate_reloads", transport.certificate_reloads);
		return rows;
	};
	return function;
}

//! Asking makes the outcome final: what has not reached the log by now never commits.
Rows TransactionOutcome(NodeRuntime &runtime, const duckdb::vector<Value> &arguments) {
	auto token = arguments[0].ToString();
	AttemptWalk walk(token, &runtime.Replica());
	auto deadline = SystemClock().Now() + OUTCOME_TIMEOUT;
	auto outcome = walk.Advance();
	while (!outcome) {
		auto asked = walk.Id();
		auto answer = runtime.Replica().ResolveOutcome(asked, walk.Base(), deadline);
		outcome = walk.Advance();
		if (!outcome && walk.Id() == asked) {
			ThrowCoded(Status(ErrorCode::Unavailable, "the outcome of " + token + " cannot be decided now (" +
			                                              answer.status.Message() + "): " + RootReason(runtime) +
			                                              "; ask again"));
		}
	}
	auto &status = outcome->status;
	if (status.Code() == ErrorCode::OutcomeUnknown) {
		// Not ours to guess: it may have been committed before the remembered entries began.
		return {{Text("unknown"), Text(""), Text(status.Message()), Unsigned(0)}};
	}
	return {{Text(status.IsOk() ? "committed" : "not_committed"),
	         Text(status.IsOk() ? "" : ErrorCodeName(status.Code())), Text(status.Message()),
	         Unsigned(outcome->index)}};
}

//! The same on every node of this version; a function so that programs need not parse a document.
StatusFunction ErrorCodesFunction() {
	StatusFunction function;
	function.name = "quack_error_codes";
	function.columns = {{"code", LogicalType::VARCHAR},
	                    {"exception_type", LogicalType::VARCHAR},
	                    {"retry", LogicalType::VARCHAR}};
	function.own_rows = [] {
		Rows rows;
		for (auto &error : ErrorClasses()) {
			auto type = duckdb::Exception::ExceptionTypeToString(ExceptionTypeOf(error.code));
			rows.push_back({Text(ErrorCodeName(error.code)), Text(type), Text(error.retry)});
		}
		return rows;
	};
	return function;
}

StatusFunction TransactionOutcomeFunction() {
	StatusFunction function;
	function.name = "quack_transaction_outcome";
	function.arguments = {LogicalType::VARCHAR};
	function.columns = {{"outcome", LogicalType::VARCHAR},
	                    {"code", LogicalType::VARCHAR},
	                    {"message", LogicalType::VARCHAR},
	                    {"commit_index", LogicalType::UBIGINT}};
	function.rows = TransactionOutcome;
	return function;
}

StatusFunction TableGroupsFunction() {
	StatusFunction function;
	function.name = "quack_table_groups";
	function.columns = {{"table_schema", LogicalType::VARCHAR}, {"table_name", LogicalType::VARCHAR},
	                    {"shard_key", LogicalType::VARCHAR},    {"slots", LogicalType::UBIGINT},
	                    {"group", LogicalType::VARCHAR},        {"epoch", LogicalType::UBIGINT},
	                    {"leader", LogicalType::VARCHAR}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		return TableGroupRows(runtime);
	};
	return function;
}

StatusFunction GroupStatusFunction() {
	StatusFunction function;
	function.name = "quack_group_status";
	function.columns = {{"group", LogicalType::VARCHAR},        {"members", LogicalType::LIST(GroupMemberType())},
	                    {"leader", LogicalType::VARCHAR},       {"term", LogicalType::UBIGINT},
	                    {"commit_index", LogicalType::UBIGINT}, {"applied_index", LogicalType::UBIGINT},
	                    {"queue_count", LogicalType::UBIGINT},  {"queue_bytes", LogicalType::UBIGINT},
	                    {"last_error", LogicalType::VARCHAR}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		return GroupStatusRows(runtime);
	};
	return function;
}

StatusFunction MultiraftContractFunction() {
	StatusFunction function;
	function.name = "quack_multiraft_sql_contract_status";
	function.columns = {{"feature", LogicalType::VARCHAR},
	                    {"enabled", LogicalType::BOOLEAN},
	                    {"since_entry_format", LogicalType::UBIGINT},
	                    {"lacking_nodes", LogicalType::LIST(LogicalType::VARCHAR)}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		return MultiraftContractRows(runtime);
	};
	return function;
}

StatusFunction ChangesPositionFunction() {
	StatusFunction function;
	function.name = "quack_changes_position";
	function.columns = {{"position", LogicalType::VARCHAR}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		catalog::AppliedVector applied;
		for (auto &group : runtime.Replica().ChangesStatus().groups) {
			applied[group.group] = group.applied;
		}
		return Rows {{Text(catalog::PositionsToText(applied))}};
	};
	return function;
}

StatusFunction ChangesStatusFunction() {
	StatusFunction function;
	function.name = "quack_changes_status";
	function.columns = {{"group_id", LogicalType::UBIGINT},        {"group", LogicalType::VARCHAR},
	                    {"retention_bytes", LogicalType::UBIGINT}, {"kept_bytes", LogicalType::UBIGINT},
	                    {"oldest_index", LogicalType::UBIGINT},    {"applied_index", LogicalType::UBIGINT}};
	function.rows = [](NodeRuntime &runtime, const duckdb::vector<Value> &) {
		auto status = runtime.Replica().ChangesStatus();
		Rows rows;
		for (auto &group : status.groups) {
			rows.push_back({Unsigned(group.group), Text(group.name), Unsigned(status.retention), Unsigned(group.bytes),
			                status.retention == 0 ? Value(LogicalType::UBIGINT) : Unsigned(group.oldest),
			                Unsigned(group.applied)});
		}
		return rows;
	};
	return function;
}

duckdb::unique_ptr<duckdb::FunctionData> BindStatus(duckdb::ClientContext &context,
                                                    duckdb::TableFunctionBindInput &input,
                                                    duckdb::vector<LogicalType> &return_types,
                                                    duckdb::vector<duckdb::Identifier> &names) {
	auto data = duckdb::make_uniq<StatusBindData>();
	data->function = &input.info->Cast<StatusFunctionInfo>().function;
	auto &function = *data->function;
	for (auto &column : function.columns) {
		names.push_back(duckdb::Identifier(column.first));
		return_types.push_back(column.second);
	}
	auto first = input.inputs.size() - function.arguments.size();
	for (size_t i = first; i < input.inputs.size(); i++) {
		data->arguments.push_back(input.inputs[i]);
	}
	if (first == 1 && !input.inputs[0].IsNull()) {
		auto name = input.inputs[0].ToString();
		if (IsRemoteCatalog(context, name)) {
			data->catalog = name;
		} else if (name != catalog::CATALOG_NAME || !NodeRuntime::Find(*context.db)) {
			throw duckdb::BinderException("%s: '%s' is neither this node's catalog nor attached with TYPE quack",
			                              function.name, name);
		}
	} else if (first == 0 && !function.own_rows && !NodeRuntime::Find(*context.db)) {
		data->catalog = OnlyRemoteCatalog(context, function.name);
	}
	return std::move(data);
}

Rows RemoteStatusRows(duckdb::ClientContext &context, const StatusBindData &data) {
	auto &function = *data.function;
	std::string arguments;
	for (auto &argument : data.arguments) {
		arguments += (arguments.empty() ? "" : ", ") + argument.ToSQLString();
	}
	RemoteRows remote;
	if (!RunOnRemote(context, data.catalog, "SELECT * FROM " + function.name + "(" + arguments + ")", remote)) {
		throw duckdb::BinderException("Catalog '%s' was detached", data.catalog);
	}
	Rows rows;
	for (auto &row : remote.rows->Rows()) {
		Row values;
		for (size_t i = 0; i < function.columns.size(); i++) {
			values.push_back(row.GetValue(i).DefaultCastAs(function.columns[i].second));
		}
		rows.push_back(std::move(values));
	}
	return rows;
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> InitStatus(duckdb::ClientContext &context,
                                                                duckdb::TableFunctionInitInput &input) {
	auto &data = input.bind_data->Cast<StatusBindData>();
	auto state = duckdb::make_uniq<RowTableState>();
	if (data.function->own_rows) {
		state->rows = data.function->own_rows();
	} else if (data.catalog.empty()) {
		state->rows = data.function->rows(*NodeRuntime::Get(*context.db), data.arguments);
	} else {
		state->rows = RemoteStatusRows(context, data);
	}
	return std::move(state);
}

void Register(duckdb::ExtensionLoader &loader, const StatusFunction &function) {
	duckdb::TableFunctionSet set {duckdb::Identifier(function.name)};
	auto info = duckdb::make_shared_ptr<StatusFunctionInfo>(function);
	for (bool with_catalog : {false, true}) {
		auto arguments = function.arguments;
		if (with_catalog) {
			arguments.insert(arguments.begin(), LogicalType::VARCHAR);
		}
		duckdb::TableFunction overload(arguments, ScanRowTable, BindStatus, InitStatus);
		overload.function_info = info;
		set.AddFunction(overload);
	}
	loader.RegisterFunction(set);
}

} // namespace

void RegisterStatusFunctions(duckdb::ExtensionLoader &loader) {
	for (auto &function :
	     {RaftStatusFunction(), StateHashFunction(), ChecksumsFunction(), PeersFunction(), SnapshotTransfersFunction(),
	      MembersFunction(), RefusalsFunction(), SessionsFunction(), StatisticsFunction(), ErrorCodesFunction(),
	      TransactionOutcomeFunction(), OpenTransactionsFunction(), TableGroupsFunction(), GroupStatusFunction(),
	      MultiraftContractFunction(), ChangesPositionFunction(), ChangesStatusFunction()}) {
		Register(loader, function);
	}
}

} // namespace sql
} // namespace quack
