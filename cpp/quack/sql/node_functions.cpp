#include "quack/sql/functions.hpp"

#include <chrono>
#include <thread>

#include "duckdb/function/function_set.hpp"
#include "duckdb/function/table_function.hpp"
#include "quack/sql/node_runtime.hpp"
#include "quack/sql/read_barrier.hpp"
#include "quack/sql/session.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::LogicalType;
using duckdb::Value;

namespace {

constexpr MonotonicNs TRANSFER_TIMEOUT = 10 * NS_PER_SECOND;
constexpr MonotonicNs CHECKPOINT_TIMEOUT = 300 * NS_PER_SECOND;

//! An action and the one text row it answers.
using Action = std::string (*)(duckdb::ClientContext &, const duckdb::vector<Value> &);

struct ActionInfo final : public duckdb::TableFunctionInfo {
	explicit ActionInfo(Action action_p) : action(action_p) {
	}
	Action action;
};

struct ActionBindData final : public duckdb::TableFunctionData {
	Action action = nullptr;
	duckdb::vector<Value> arguments;
};

struct ActionState final : public duckdb::GlobalTableFunctionState {
	bool done = false;
};

duckdb::unique_ptr<duckdb::FunctionData> BindAction(duckdb::ClientContext &, duckdb::TableFunctionBindInput &input,
                                                    duckdb::vector<LogicalType> &return_types,
                                                    duckdb::vector<duckdb::Identifier> &names) {
	auto data = duckdb::make_uniq<ActionBindData>();
	data->action = input.info->Cast<ActionInfo>().action;
	data->arguments = input.inputs;
	names.push_back(duckdb::Identifier("result"));
	return_types.push_back(LogicalType::VARCHAR);
	return std::move(data);
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> InitAction(duckdb::ClientContext &,
                                                                duckdb::TableFunctionInitInput &) {
	return duckdb::make_uniq<ActionState>();
}

void RunAction(duckdb::ClientContext &context, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
	auto &state = input.global_state->Cast<ActionState>();
	if (state.done) {
		return;
	}
	state.done = true;
	auto &data = input.bind_data->Cast<ActionBindData>();
	output.data[0].SetValue(0, Value(data.action(context, data.arguments)));
	output.SetChildCardinality(1);
}

void ThrowUnlessOk(const Status &status) {
	if (!status.IsOk()) {
		ThrowCoded(status);
	}
}

//! A client's statement runs on a worker that the stopping node waits for.
void RefuseClients(duckdb::ClientContext &context, const char *function) {
	if (Session::TryGet(context) != nullptr) {
		ThrowCoded(
		    Status(ErrorCode::Unauthorized,
			       std::string(function) + " can only be called in the node's own process, not by a Quack client"));
	}
}

std::string StartNode(duckdb::ClientContext &context, const duckdb::vector<Value> &arguments) {
	RefuseClients(context, "quack_node_start");
	if (arguments[0].IsNull()) {
		ThrowCoded(Status(ErrorCode::InvalidArgument, "quack_node_start: expected one JSON object, got NULL"));
	}
	ThrowUnlessOk(NodeRuntime::Start(*context.db, arguments[0].ToString()));
	auto runtime = NodeRuntime::Get(*context.db);
	return "node " + runtime->Config().node_id + " listens on port " + std::to_string(runtime->ListenPort());
}

std::string StopNode(duckdb::ClientContext &context, const duckdb::vector<Value> &) {
	RefuseClients(context, "quack_node_stop");
	ThrowUnlessOk(NodeRuntime::Stop(*context.db));
	return "stopped";
}

std::string TransferAction(duckdb::ClientContext &context, const duckdb::vector<Value> &arguments) {
	auto runtime = NodeRuntime::Get(*context.db);
	auto target = arguments.empty() || arguments[0].IsNull() ? std::string() : arguments[0].ToString();
	ThrowUnlessOk(TransferLeadership(runtime->Engine(), raft::ROOT_GROUP, target, TRANSFER_TIMEOUT));
	return target.empty() ? "leadership handed over" : "leadership handed over to " + target;
}

node::GroupStatus RootStatus(node::ConsensusEngine &engine) {
	for (auto &group : engine.GetStatus()) {
		if (group.group == raft::ROOT_GROUP) {
			return group;
		}
	}
	return node::GroupStatus();
}

//! Waits until what was applied here before the call would survive a crash without the log.
std::string CheckpointAction(duckdb::ClientContext &context, const duckdb::vector<Value> &) {
	auto runtime = NodeRuntime::Get(*context.db);
	auto &engine = runtime->Engine();
	auto goal = RootStatus(engine).applied_index;
	auto deadline = SystemClock().Now() + CHECKPOINT_TIMEOUT;
	engine.RequestCheckpoint();
	while (true) {
		auto status = RootStatus(engine);
		if (status.checkpoint_index >= goal) {
			return "checkpoint at index " + std::to_string(status.checkpoint_index);
		}
		if (status.degraded) {
			ThrowCoded(Status(ErrorCode::Degraded, "no checkpoint: " + status.reason));
		}
		if (SystemClock().Now() > deadline) {
			ThrowCoded(Status(ErrorCode::DeadlineExceeded,
			                  "no checkpoint up to index " + std::to_string(goal) + " within " +
			                      std::to_string(CHECKPOINT_TIMEOUT / NS_PER_SECOND) + " s; the newest is at index " +
			                      std::to_string(status.checkpoint_index)));
		}
		context.InterruptCheck();
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
}

void Register(duckdb::ExtensionLoader &loader, const char *name,
              const std::vector<duckdb::vector<LogicalType>> &argument_lists, Action action) {
	duckdb::TableFunctionSet set {duckdb::Identifier(name)};
	for (auto &arguments : argument_lists) {
		duckdb::TableFunction function(arguments, RunAction, BindAction, InitAction);
		function.function_info = duckdb::make_shared_ptr<ActionInfo>(action);
		set.AddFunction(function);
	}
	loader.RegisterFunction(set);
}

} // namespace

void RegisterNodeFunctions(duckdb::ExtensionLoader &loader) {
	Register(loader, "quack_node_start", {{LogicalType::VARCHAR}}, StartNode);
	Register(loader, "quack_node_stop", {{}}, StopNode);
	Register(loader, "quack_checkpoint", {{}}, CheckpointAction);
	Register(loader, "quack_transfer_leadership", {{}, {LogicalType::VARCHAR}}, TransferAction);
}

} // namespace sql
} // namespace quack
