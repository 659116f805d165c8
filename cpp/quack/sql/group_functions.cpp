#include "quack/sql/group_functions.hpp"

#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/common/vector/flat_vector.hpp"
#include "duckdb/function/scalar_function.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database_manager.hpp"
#include "quack/catalog/effects.hpp"
#include "quack/catalog/placement_request.hpp"
#include "quack/catalog/placement_statements.hpp"
#include "quack/catalog/placements.hpp"
#include "quack/catalog/slot_router.hpp"
#include "quack/node/transaction_entry.hpp"
#include "quack/sql/cluster_setting.hpp"
#include "quack/sql/remote_catalog_entry.hpp"

namespace quack {
namespace sql {

namespace {

using duckdb::Value;

//! A node that needs longer to say how it is shows as unknown.
constexpr MonotonicNs PEERS_TIMEOUT = NS_PER_SECOND;

//! Schema path and name of a table, of which there may be nothing but the key.
std::pair<std::string, std::string> NamesOf(const std::string &key,
                                            const std::map<std::string, catalog::ObjectName> &names) {
	auto known = names.find(key);
	if (known != names.end()) {
		auto &schema = known->second.schema;
		return {duckdb::StringUtil::Join(duckdb::vector<duckdb::string>(schema.begin(), schema.end()), "."),
		        known->second.name};
	}
	auto end = key.find_last_of('\0');
	auto schema = end == std::string::npos ? std::string() : key.substr(0, end);
	return {duckdb::StringUtil::Replace(schema, std::string(1, '\0'), "."),
	        end == std::string::npos ? key : key.substr(end + 1)};
}

//! Names as SQL needs them, so that they may stand within quack_slot(...).
std::string ShardKeyText(const catalog::Placement &placement) {
	std::string text;
	for (auto &column : placement.shard_key) {
		text += (text.empty() ? "" : ",") + duckdb::SQLIdentifier::ToString(column);
	}
	return text;
}

std::map<raft::GroupId, std::string> Leaders(NodeRuntime &runtime) {
	std::map<raft::GroupId, std::string> leaders;
	for (auto &group : runtime.Engine().GetStatus()) {
		leaders[group.group] = group.leader_id;
	}
	return leaders;
}

using PeerAnswers = std::map<std::string, wire::StatusAnswer>;

//! What a member says of itself, and the leader of its log. NULL = not known now.
Value MemberOf(const node::GroupStatus &group, const PeerAnswers &peers, const std::string &node_id, const char *role) {
	Value match(duckdb::LogicalType::UBIGINT);
	Value applied(duckdb::LogicalType::UBIGINT);
	Value queue_count(duckdb::LogicalType::UBIGINT);
	auto is_connected = node_id == group.node_id;
	std::string error;
	if (is_connected) {
		match = Value::UBIGINT(group.durable_index);
		applied = Value::UBIGINT(group.applied_index);
		queue_count = Value::UBIGINT(group.apply_queue_count);
		error = group.reason;
	}
	for (auto &peer : group.peers) {
		if (peer.node_id == node_id) {
			match = group.is_leader ? Value::UBIGINT(peer.match) : match;
			is_connected = peer.connected;
			error = peer.last_error;
		}
	}
	auto answer = peers.find(node_id);
	if (answer != peers.end()) {
		for (auto &row : answer->second.groups) {
			if (row.group == group.group) {
				applied = Value::UBIGINT(row.applied_index);
				queue_count = Value::UBIGINT(row.queue_count);
				error = row.reason;
			}
		}
	}
	return Value::STRUCT({{"node_id", Value(node_id)},
	                      {"role", Value(role)},
	                      {"match_index", match},
	                      {"applied_index", applied},
	                      {"queue_count", queue_count},
	                      {"connected", Value::BOOLEAN(is_connected)},
	                      {"last_error", error.empty() ? Value(duckdb::LogicalType::VARCHAR) : Value(error)}});
}

bool PlaceRemotely(duckdb::ClientContext &context, const std::string &catalog,
                   const catalog::PlacementStatement &statement, const std::vector<std::string> &table) {
	auto remote = FindRemoteCatalog(context, catalog);
	if (!remote) {
		return false;
	}
	remote->ExecuteDdl(context, statement.ToSql(table));
	return true;
}

duckdb::unique_ptr<duckdb::FunctionData> BindSlot(duckdb::BindScalarFunctionInput &input) {
	for (auto &key : input.GetArguments()) {
		auto &type = key->GetReturnType();
		if (!catalog::MayBeShardKey(type)) {
			throw duckdb::BinderException("quack_slot: %s has type %s, which no shard key has; expected %s",
			                              key->ToString(), type.ToString(), catalog::SHARD_KEY_TYPES);
		}
	}
	return nullptr;
}

void Slot(duckdb::DataChunk &keys, duckdb::ExpressionState &, duckdb::Vector &result) {
	auto count = keys.size();
	auto slots = catalog::SlotsOf(keys);
	auto *out = duckdb::FlatVector::GetDataMutable<uint32_t>(result);
	std::copy(slots.begin(), slots.end(), out);
	duckdb::FlatVector::SetSize(result, duckdb::count_t(count));
}

void RegisterSlotFunction(duckdb::ExtensionLoader &loader) {
	auto any = duckdb::LogicalType(duckdb::LogicalTypeId::ANY);
	duckdb::ScalarFunction function("quack_slot", {any}, duckdb::LogicalType::UINTEGER, Slot, BindSlot, nullptr,
	                                nullptr, any);
	function.SetNullHandling(duckdb::FunctionNullHandling::SPECIAL_HANDLING);
	loader.RegisterFunction(function);
}

} // namespace

GroupRows TableGroupRows(NodeRuntime &runtime) {
	auto placements = runtime.Replica().GetPlacements();
	auto leaders = Leaders(runtime);
	auto written = runtime.Replica().TableNames();
	GroupRows rows;
	for (auto &table : placements->Tables()) {
		auto names = NamesOf(table.first, written);
		auto &placement = table.second;
		std::map<raft::GroupId, uint64_t> slots;
		for (uint32_t slot = 0; slot < catalog::SLOT_COUNT && placement.IsSharded(); slot++) {
			slots[placement.GroupOfSlot(slot)]++;
		}
		for (auto group : placement.AllGroups()) {
			auto leader = leaders.find(group);
			rows.push_back(
			    {Value(names.first), Value(names.second),
				 placement.IsSharded() ? Value(ShardKeyText(placement)) : Value(duckdb::LogicalType::VARCHAR),
				 Value::UBIGINT(placement.IsSharded() ? slots[group] : catalog::SLOT_COUNT),
				 Value(placements->NameOf(group)), Value::UBIGINT(placement.epoch),
				 leader == leaders.end() || leader->second.empty() ? Value(duckdb::LogicalType::VARCHAR)
				                                                   : Value(leader->second)});
		}
	}
	return rows;
}

duckdb::LogicalType GroupMemberType() {
	return duckdb::LogicalType::STRUCT({{"node_id", duckdb::LogicalType::VARCHAR},
	                                    {"role", duckdb::LogicalType::VARCHAR},
	                                    {"match_index", duckdb::LogicalType::UBIGINT},
	                                    {"applied_index", duckdb::LogicalType::UBIGINT},
	                                    {"queue_count", duckdb::LogicalType::UBIGINT},
	                                    {"connected", duckdb::LogicalType::BOOLEAN},
	                                    {"last_error", duckdb::LogicalType::VARCHAR}});
}

GroupRows GroupStatusRows(NodeRuntime &runtime) {
	GroupRows rows;
	auto peers = runtime.Engine().StatusOfPeers(PEERS_TIMEOUT);
	for (auto &group : runtime.Engine().GetStatus()) {
		duckdb::vector<Value> members;
		for (auto &voter : group.voters) {
			members.push_back(MemberOf(group, peers, voter, "voter"));
		}
		for (auto &learner : group.learners) {
			members.push_back(MemberOf(group, peers, learner, "learner"));
		}
		rows.push_back({Value(group.group_name), Value::LIST(GroupMemberType(), std::move(members)),
		                group.leader_id.empty() ? Value(duckdb::LogicalType::VARCHAR) : Value(group.leader_id),
		                Value::UBIGINT(group.term), Value::UBIGINT(group.commit_index),
		                Value::UBIGINT(group.applied_index), Value::UBIGINT(group.apply_queue_count),
		                Value::UBIGINT(group.apply_queue_bytes),
		                group.reason.empty() ? Value(duckdb::LogicalType::VARCHAR) : Value(group.reason)});
	}
	return rows;
}

GroupRows MultiraftContractRows(NodeRuntime &runtime) {
	auto is_enabled = runtime.Replica().IsMultiraftSqlEnabled();
	// A node that does not know these entries is not let into the cluster, so none can lack them.
	GroupRows rows;
	for (auto &feature :
	     {"CREATE TABLE WITH (quack_group)", "CREATE TABLE WITH (quack_shard_key, quack_initial_groups)",
	      "ALTER TABLE SET GROUP", "ALTER TABLE SET GROUP DEFAULT", "ALTER TABLE SET GROUPS",
	      "transactions over several groups"}) {
		rows.push_back({Value(feature), Value::BOOLEAN(is_enabled), Value::UBIGINT(node::TRANSACTION_ENTRY_VERSION),
		                Value::LIST(duckdb::LogicalType::VARCHAR, {})});
	}
	return rows;
}

void RegisterGroupFunctions(duckdb::ExtensionLoader &loader) {
	ClusterSetting setting;
	setting.function = "quack_multiraft_sql_set_enabled";
	setting.types = {duckdb::LogicalType::BOOLEAN};
	setting.expected = "true or false";
	setting.set = [](catalog::ReplicatedDatabase &replica, const Value &value, MonotonicNs deadline) {
		return replica.SetMultiraftSql(duckdb::BooleanValue::Get(value), deadline);
	};
	RegisterClusterSetting(loader, setting);
	RegisterSlotFunction(loader);
	catalog::RegisterPlacementStatements(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()), PlaceRemotely);
}

} // namespace sql
} // namespace quack
