#include "quack/sql/functions.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/function/function_set.hpp"
#include "duckdb/function/table_function.hpp"
#include "quack/catalog/replicated_database.hpp"
#include "quack/sql/cluster_setting.hpp"
#include "quack/sql/node_runtime.hpp"
#include "quack/sql/read_barrier.hpp"
#include "quack/sql/remote_catalog.hpp"
#include "quack/sql/session.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::LogicalType;
using duckdb::Value;

namespace {

constexpr MonotonicNs TRANSFER_TIMEOUT = 10 * NS_PER_SECOND;
constexpr MonotonicNs MEMBER_TIMEOUT = 30 * NS_PER_SECOND;
constexpr MonotonicNs BACKUP_BARRIER_TIMEOUT = 30 * NS_PER_SECOND;
constexpr MonotonicNs CHECKPOINT_TIMEOUT = 300 * NS_PER_SECOND;

using Arguments = duckdb::vector<Value>;
using Answers = std::vector<std::string>;

//! Something done once, on this node or, through an attached catalog, on a remote one; answers one row of text.
struct Action {
	std::string name;
	std::vector<std::string> columns = {"result"};
	//! Of columns that are not VARCHAR.
	std::map<std::string, LogicalType> types;
	std::function<Result<Answers>(duckdb::ClientContext &, const Arguments &)> run;
	//! Arguments that may be followed by the name of an attached catalog; NOWHERE = only the node's own process.
	size_t own_arguments = NOWHERE;
	//! Refused where only reading is allowed.
	bool changes_cluster = false;

	static constexpr size_t NOWHERE = SIZE_MAX;
};

struct ActionInfo final : public duckdb::TableFunctionInfo {
	explicit ActionInfo(Action action_p) : action(std::move(action_p)) {
	}
	Action action;
};

struct ActionBindData final : public duckdb::TableFunctionData {
	const Action *action = nullptr; //! of the catalog's function, which outlives the query
	Arguments arguments;
	std::string catalog; //! empty = this node
};

struct ActionState final : public duckdb::GlobalTableFunctionState {
	bool done = false;
};

duckdb::unique_ptr<duckdb::FunctionData> BindAction(duckdb::ClientContext &context,
                                                    duckdb::TableFunctionBindInput &input,
                                                    duckdb::vector<LogicalType> &return_types,
                                                    duckdb::vector<duckdb::Identifier> &names) {
	auto data = duckdb::make_uniq<ActionBindData>();
	data->action = &input.info->Cast<ActionInfo>().action;
	data->arguments = input.inputs;
	for (auto &column : data->action->columns) {
		auto type = data->action->types.find(column);
		names.push_back(duckdb::Identifier(column));
		return_types.push_back(type == data->action->types.end() ? LogicalType::VARCHAR : type->second);
	}
	if (data->action->own_arguments != Action::NOWHERE && data->arguments.size() > data->action->own_arguments) {
		auto name = data->arguments.back();
		data->arguments.pop_back();
		if (!name.IsNull() && IsRemoteCatalog(context, name.ToString())) {
			data->catalog = name.ToString();
		} else if (!name.IsNull() && (name.ToString() != catalog::CATALOG_NAME || !NodeRuntime::Find(*context.db))) {
			throw duckdb::BinderException("%s: '%s' is neither this node's catalog nor attached with TYPE quack",
			                              data->action->name, name.ToString());
		}
	}
	return std::move(data);
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> InitAction(duckdb::ClientContext &,
                                                                duckdb::TableFunctionInitInput &) {
	return duckdb::make_uniq<ActionState>();
}

//! Functions whose failures are rows instead of errors. A client sends a failed statement again while its class says
//! that this is safe; a refusal to an operator has to be heard at once.
constexpr const char *OUTCOME_SUFFIX = "_outcome";

ErrorCode CodeNamed(const std::string &name) {
	for (uint8_t i = 0; i <= static_cast<uint8_t>(ErrorCode::Internal); i++) {
		if (name == ErrorCodeName(static_cast<ErrorCode>(i))) {
			return static_cast<ErrorCode>(i);
		}
	}
	return ErrorCode::Internal;
}

Result<Answers> RunActionThere(duckdb::ClientContext &context, const ActionBindData &data) {
	std::string arguments;
	for (auto &argument : data.arguments) {
		arguments += (arguments.empty() ? "" : ", ") + argument.ToSQLString();
	}
	RemoteRows remote;
	auto statement = "SELECT * FROM " + data.action->name + OUTCOME_SUFFIX + "(" + arguments + ")";
	if (!RunOnRemote(context, data.catalog, statement, remote)) {
		throw duckdb::BinderException("Catalog '%s' was detached", data.catalog);
	}
	Answers answers;
	for (auto &row : remote.rows->Rows()) {
		auto code = row.GetValue(0).ToString();
		if (!code.empty()) {
			// As every error that comes from a node, it shows its code.
			return Status(CodeNamed(code), row.GetValue(1).ToString() + " [quack:" + code + "]");
		}
		for (size_t i = 0; i < data.action->columns.size(); i++) {
			auto value = row.GetValue(2 + i);
			auto is_blob = value.type().id() == duckdb::LogicalTypeId::BLOB;
			answers.push_back(is_blob ? duckdb::StringValue::Get(value) : value.ToString());
		}
	}
	return answers;
}

void RunAction(duckdb::ClientContext &context, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
	auto &state = input.global_state->Cast<ActionState>();
	if (state.done) {
		return;
	}
	state.done = true;
	auto &data = input.bind_data->Cast<ActionBindData>();
	if (data.action->changes_cluster) {
		RefuseReadOnly(context, data.action->name, data.catalog.empty() ? catalog::CATALOG_NAME : data.catalog);
	}
	auto outcome = data.catalog.empty() ? data.action->run(context, data.arguments) : RunActionThere(context, data);
	if (!outcome.IsOk()) {
		ThrowCoded(outcome.GetStatus());
	}
	auto &answers = outcome.Value();
	for (size_t i = 0; i < answers.size(); i++) {
		auto is_blob = output.data[i].GetType().id() == duckdb::LogicalTypeId::BLOB;
		output.data[i].SetValue(0, is_blob ? Value::BLOB_RAW(answers[i]) : Value(answers[i]));
	}
	output.SetChildCardinality(answers.empty() ? 0 : 1);
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

Result<Answers> StartNode(duckdb::ClientContext &context, const Arguments &arguments) {
	RefuseClients(context, "quack_node_start");
	if (arguments[0].IsNull()) {
		ThrowCoded(Status(ErrorCode::InvalidArgument, "quack_node_start: expected one JSON object, got NULL"));
	}
	ThrowUnlessOk(NodeRuntime::Start(*context.db, arguments[0].ToString()));
	auto runtime = NodeRuntime::Get(*context.db);
	return Answers {"node " + runtime->Config().node_id + " listens on port " + std::to_string(runtime->ListenPort())};
}

Result<Answers> StopNode(duckdb::ClientContext &context, const Arguments &) {
	RefuseClients(context, "quack_node_stop");
	ThrowUnlessOk(NodeRuntime::Stop(*context.db));
	return Answers {"stopped"};
}

Result<Answers> RestartDue(duckdb::ClientContext &context, const Arguments &) {
	return Answers {NodeRuntime::Get(*context.db)->IsRestartDue() ? "yes" : "no"};
}

std::string TextOrEmpty(const Arguments &arguments, size_t position) {
	return arguments.size() <= position || arguments[position].IsNull() ? std::string()
	                                                                    : arguments[position].ToString();
}

Result<Answers> TransferAction(duckdb::ClientContext &context, const Arguments &arguments) {
	auto runtime = NodeRuntime::Get(*context.db);
	auto leader = TransferLeadership(runtime->Engine(), raft::ROOT_GROUP, TextOrEmpty(arguments, 0), TRANSFER_TIMEOUT);
	if (!leader.IsOk()) {
		return leader.GetStatus();
	}
	return Answers {"node '" + leader.Value() + "' leads now", leader.Value()};
}

Result<Answers> RebalanceAction(duckdb::ClientContext &context, const Arguments &) {
	auto words = Rebalance(NodeRuntime::Get(*context.db)->Engine(), TRANSFER_TIMEOUT);
	if (!words.IsOk()) {
		return words.GetStatus();
	}
	return Answers {words.Value()};
}

//! Its argument keeps a command from reaching another node than it names.
Result<Answers> ReseedAction(duckdb::ClientContext &context, const Arguments &arguments) {
	auto runtime = NodeRuntime::Get(*context.db);
	auto &self = runtime->Config().node_id;
	auto name = TextOrEmpty(arguments, 0);
	if (name != self) {
		return Status(ErrorCode::InvalidArgument, "quack_reseed: this is node '" + self + "', not '" + name + "'");
	}
	auto status = runtime->Reseed();
	if (!status.IsOk()) {
		return status;
	}
	return Answers {"node '" + self + "' moves its catalog aside and restarts"};
}

Action MemberFunction(const char *name, node::MemberAction member_action) {
	Action action;
	action.name = name;
	action.own_arguments = 1;
	action.changes_cluster = true;
	action.run = [name, member_action](duckdb::ClientContext &context, const Arguments &arguments) -> Result<Answers> {
		auto runtime = NodeRuntime::Get(*context.db);
		node::MemberChange change;
		change.action = member_action;
		change.name = TextOrEmpty(arguments, 0);
		if (change.name.empty()) {
			return Status(ErrorCode::InvalidArgument, std::string(name) + ": expected a node id, got nothing");
		}
		auto words = ChangeMember(runtime->Engine(), change, MEMBER_TIMEOUT);
		if (!words.IsOk()) {
			return words.GetStatus();
		}
		return Answers {words.Value()};
	};
	return action;
}

node::GroupStatus RootStatus(node::ConsensusEngine &engine) {
	for (auto &group : engine.GetStatus()) {
		if (group.group == raft::ROOT_GROUP) {
			return group;
		}
	}
	return node::GroupStatus();
}

//! Waits until a checkpoint covers the root group up to `goal`; returns where it stands.
raft::LogIndex CheckpointTo(duckdb::ClientContext &context, node::RaftEngine &engine, raft::LogIndex goal) {
	auto deadline = SystemClock().Now() + CHECKPOINT_TIMEOUT;
	engine.RequestCheckpoint();
	while (true) {
		auto status = RootStatus(engine);
		if (status.checkpoint_index >= goal) {
			return status.checkpoint_index;
		}
		if (status.degraded) {
			ThrowCoded(Status(ErrorCode::Degraded, "no checkpoint: " + status.reason));
		}
		if (SystemClock().Now() > deadline) {
			ThrowCoded(Status(ErrorCode::DeadlineExceeded,
			                  "no checkpoint up to index " + std::to_string(goal) + " within " +
			                      std::to_string(CHECKPOINT_TIMEOUT / NS_PER_SECOND) + " s; the newest is at index " +
			                      std::to_string(status.checkpoint_index) +
			                      (status.reason.empty() ? "" : ": " + status.reason)));
		}
		context.InterruptCheck();
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
}

//! Waits until what was applied here before the call would survive a crash without the log.
Result<Answers> CheckpointAction(duckdb::ClientContext &context, const Arguments &) {
	auto runtime = NodeRuntime::Get(*context.db);
	auto &engine = runtime->Engine();
	auto index = CheckpointTo(context, engine, RootStatus(engine).applied_index);
	return Answers {"checkpoint at index " + std::to_string(index)};
}

Result<uint64_t> NumberArgument(const char *function, const Arguments &arguments, size_t position) {
	auto text = TextOrEmpty(arguments, position);
	uint64_t number = 0;
	if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string::npos) {
		return Status(ErrorCode::InvalidArgument, std::string(function) + ": expected a number, got '" + text + "'");
	}
	for (auto digit : text) {
		number = number * 10 + static_cast<uint64_t>(digit - '0');
	}
	return number;
}

//! An image number is good on the node that gave it: the name goes with it.
std::string NameImage(const NodeRuntime &runtime, uint64_t image) {
	return runtime.Config().node_id + "/" + std::to_string(image);
}

Result<uint64_t> FindImage(const char *function, const NodeRuntime &runtime, const Arguments &arguments) {
	auto name = TextOrEmpty(arguments, 0);
	auto prefix = runtime.Config().node_id + "/";
	if (name.compare(0, prefix.size(), prefix) != 0) {
		return Status(ErrorCode::NotFound, std::string(function) + ": image '" + name + "' is not open on node '" +
		                                       runtime.Config().node_id +
		                                       "'; the connection moved to another node: begin anew");
	}
	return NumberArgument(function, {Value(name.substr(prefix.size()))}, 0);
}

//! Everything committed before the call is in the image.
Result<Answers> OpenBackupAction(duckdb::ClientContext &context, const Arguments &) {
	auto runtime = NodeRuntime::Get(*context.db);
	auto &engine = runtime->Engine();
	auto status = WaitForRootGroup(engine, BACKUP_BARRIER_TIMEOUT);
	if (!status.IsOk()) {
		return status;
	}
	auto index_min = CheckpointTo(context, engine, RootStatus(engine).applied_index);
	auto opened = OpenImage(engine, index_min);
	if (!opened.IsOk()) {
		return opened.GetStatus();
	}
	auto &image = opened.Value();
	std::string positions;
	for (auto &position : image.positions) {
		positions += (positions.empty() ? "" : ", ") + std::string("{\"group\": ") + std::to_string(position.group) +
		             ", \"index\": " + std::to_string(position.index) + ", \"term\": " + std::to_string(position.term) +
		             "}";
	}
	return Answers {NameImage(*runtime, image.image), std::to_string(image.bytes), runtime->Config().cluster_id,
	                runtime->Config().node_id,        QUACK_DUCKDB_VERSION,        "[" + positions + "]"};
}

Result<Answers> ReadBackupAction(duckdb::ClientContext &context, const Arguments &arguments) {
	constexpr auto NAME = "quack_backup_read";
	auto runtime = NodeRuntime::Get(*context.db);
	auto image = FindImage(NAME, *runtime, arguments);
	auto offset = NumberArgument(NAME, arguments, 1);
	auto size = NumberArgument(NAME, arguments, 2);
	for (auto argument : {&image, &offset, &size}) {
		if (!argument->IsOk()) {
			return argument->GetStatus();
		}
	}
	auto data = ReadImage(runtime->Engine(), image.Value(), offset.Value(), size.Value());
	if (!data.IsOk()) {
		return data.GetStatus();
	}
	return Answers {std::move(data.Value())};
}

Result<Answers> CloseBackupAction(duckdb::ClientContext &context, const Arguments &arguments) {
	auto runtime = NodeRuntime::Get(*context.db);
	auto image = FindImage("quack_backup_close", *runtime, arguments);
	if (!image.IsOk()) {
		return image.GetStatus();
	}
	runtime->Engine().CloseImage(image.Value());
	return Answers {"closed"};
}

Result<Answers> RestoreCatalogAction(duckdb::ClientContext &context, const Arguments &arguments) {
	RefuseClients(context, "quack_restore_catalog");
	ThrowUnlessOk(catalog::GiveToCluster(*context.db, TextOrEmpty(arguments, 0), TextOrEmpty(arguments, 1)));
	return Answers {"the catalog belongs to cluster '" + TextOrEmpty(arguments, 1) + "'"};
}

void Register(duckdb::ExtensionLoader &loader, const Action &action,
              const std::vector<duckdb::vector<LogicalType>> &argument_lists) {
	duckdb::TableFunctionSet set {duckdb::Identifier(action.name)};
	for (auto &arguments : argument_lists) {
		duckdb::TableFunction function(arguments, RunAction, BindAction, InitAction);
		function.function_info = duckdb::make_shared_ptr<ActionInfo>(action);
		set.AddFunction(function);
	}
	loader.RegisterFunction(set);
}

//! For operators: with an optional catalog, and a twin that answers (code, message, ...) for the way there.
void RegisterForOperators(duckdb::ExtensionLoader &loader, const Action &action,
                          std::vector<duckdb::vector<LogicalType>> argument_lists) {
	Action twin;
	twin.name = action.name + OUTCOME_SUFFIX;
	twin.columns = {"code", "message"};
	twin.types = action.types;
	twin.columns.insert(twin.columns.end(), action.columns.begin(), action.columns.end());
	twin.run = [action](duckdb::ClientContext &context, const Arguments &arguments) -> Result<Answers> {
		auto outcome = action.run(context, arguments);
		auto failed = !outcome.IsOk();
		Answers answers {failed ? ErrorCodeName(outcome.GetStatus().Code()) : "",
		                 failed ? outcome.GetStatus().Message() : ""};
		for (size_t i = 0; i < action.columns.size(); i++) {
			answers.push_back(failed ? "" : outcome.Value()[i]);
		}
		return answers;
	};
	Register(loader, twin, argument_lists);
	duckdb::vector<LogicalType> longest(action.own_arguments + 1, LogicalType::VARCHAR);
	argument_lists.push_back(longest);
	Register(loader, action, argument_lists);
}

Action OwnProcessAction(const char *name,
                        std::function<Result<Answers>(duckdb::ClientContext &, const Arguments &)> run) {
	Action action;
	action.name = name;
	action.run = std::move(run);
	return action;
}

} // namespace

void RegisterNodeFunctions(duckdb::ExtensionLoader &loader) {
	auto text = LogicalType::VARCHAR;
	Register(loader, OwnProcessAction("quack_node_start", StartNode), {{text}});
	Register(loader, OwnProcessAction("quack_node_stop", StopNode), {{}});
	Register(loader, OwnProcessAction("quack_checkpoint", CheckpointAction), {{}});
	Register(loader, OwnProcessAction("quack_restore_catalog", RestoreCatalogAction), {{text, text}});
	auto open_backup = OwnProcessAction("quack_backup_open", OpenBackupAction);
	open_backup.columns = {"image", "bytes", "cluster_id", "node_id", "duckdb_version", "positions"};
	open_backup.own_arguments = 0;
	RegisterForOperators(loader, open_backup, {{}});
	auto read_backup = OwnProcessAction("quack_backup_read", ReadBackupAction);
	read_backup.columns = {"data"};
	read_backup.types = {{"data", LogicalType::BLOB}};
	read_backup.own_arguments = 3;
	RegisterForOperators(loader, read_backup, {{text, text, text}});
	auto close_backup = OwnProcessAction("quack_backup_close", CloseBackupAction);
	close_backup.own_arguments = 1;
	RegisterForOperators(loader, close_backup, {{text}});
	auto due = OwnProcessAction("quack_node_restart_due", RestartDue);
	due.columns = {"due"};
	Register(loader, due, {{}});
	Action reseed;
	reseed.name = "quack_reseed";
	reseed.run = ReseedAction;
	reseed.own_arguments = 1;
	reseed.changes_cluster = true;
	RegisterForOperators(loader, reseed, {{text}});
	Action transfer;
	transfer.name = "quack_transfer_leadership";
	transfer.columns = {"result", "leader_id"};
	transfer.run = TransferAction;
	transfer.own_arguments = 1;
	transfer.changes_cluster = true;
	RegisterForOperators(loader, transfer, {{}, {text}});
	Action rebalance;
	rebalance.name = "quack_rebalance";
	rebalance.run = RebalanceAction;
	rebalance.own_arguments = 0;
	rebalance.changes_cluster = true;
	RegisterForOperators(loader, rebalance, {{}});
	RegisterForOperators(loader, MemberFunction("quack_member_add", node::MemberAction::Add), {{text}});
	RegisterForOperators(loader, MemberFunction("quack_member_promote", node::MemberAction::Promote), {{text}});
	RegisterForOperators(loader, MemberFunction("quack_member_demote", node::MemberAction::Demote), {{text}});
	RegisterForOperators(loader, MemberFunction("quack_member_remove", node::MemberAction::Remove), {{text}});
	RegisterForOperators(loader, MemberFunction("quack_member_replace", node::MemberAction::Replace), {{text}});
}

} // namespace sql
} // namespace quack
