#include "quack/sql/remote_client_state.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/connection_manager.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/main/prepared_statement_data.hpp"
#include "duckdb/planner/extension_callback.hpp"

namespace quack {
namespace sql {

using duckdb::ClientContext;
using duckdb::StringUtil;

constexpr const char *STATE_NAME = "quack_remote_client";

RemoteClientState &RemoteClientState::Get(ClientContext &context) {
	return *context.registered_state->GetOrCreate<RemoteClientState>(STATE_NAME);
}

bool RemoteClientState::OnlyPlans() {
	std::lock_guard<std::mutex> guard(lock);
	if (!running) {
		return true;
	}
	for (auto word : {"explain", "prepare", "describe", "desc "}) {
		if (StringUtil::StartsWith(query_start, word)) {
			return true;
		}
	}
	return StringUtil::StartsWith(query_start, "create") && StringUtil::Contains(query_start, " view ");
}

bool RemoteClientState::ShowsDefinitions() {
	std::lock_guard<std::mutex> guard(lock);
	for (auto word : {"describe", "desc ", "show ", "summarize "}) {
		if (running && StringUtil::StartsWith(query_start, word)) {
			return true;
		}
	}
	return running && StringUtil::Contains(query_start, "table_info");
}

void RemoteClientState::NotePushed(duckdb::idx_t count) {
	std::lock_guard<std::mutex> guard(lock);
	pushed_parameters = count;
}

void RemoteClientState::RequestRebind() {
	std::lock_guard<std::mutex> guard(lock);
	rebind = true;
}

duckdb::RebindQueryInfo RemoteClientState::OnPlanningError(ClientContext &, duckdb::SQLStatement &,
                                                           duckdb::ErrorData &) {
	std::lock_guard<std::mutex> guard(lock);
	auto wanted = rebind;
	rebind = false;
	return wanted ? duckdb::RebindQueryInfo::ATTEMPT_TO_REBIND : duckdb::RebindQueryInfo::DO_NOT_REBIND;
}

void RemoteClientState::QueryBegin(ClientContext &context) {
	auto text = StringUtil::Lower(context.GetCurrentQuery().substr(0, 80));
	StringUtil::LTrim(text);
	std::lock_guard<std::mutex> guard(lock);
	running = true;
	query_start = std::move(text);
	pushed_parameters = 0;
	rebind = false;
	committed = false;
	unknown = duckdb::ErrorData();
}

void RemoteClientState::NoteCommitted() {
	std::lock_guard<std::mutex> guard(lock);
	committed = true;
}

void RemoteClientState::NoteUnknown(duckdb::ErrorData error) {
	std::lock_guard<std::mutex> guard(lock);
	unknown = std::move(error);
}

void RemoteClientState::QueryEnd(ClientContext &, duckdb::optional_ptr<duckdb::ErrorData> error) {
	std::lock_guard<std::mutex> guard(lock);
	running = false;
	pushed_parameters = 0;
	if (!error || error->Type() != duckdb::ExceptionType::INTERRUPT) {
		return;
	}
	if (unknown.HasError()) {
		*error = unknown;
	} else if (committed) {
		*error = duckdb::ErrorData(duckdb::ExceptionType::INTERRUPT,
		                           "Interrupted! But the write had been committed before [quack:committed]");
	}
}

duckdb::RebindQueryInfo RemoteClientState::OnFinalizePrepare(ClientContext &, duckdb::PreparedStatementData &prepared,
                                                             duckdb::PreparedStatementMode) {
	std::lock_guard<std::mutex> guard(lock);
	if (prepared.properties.parameter_count == 0 && pushed_parameters > 0) {
		prepared.properties.parameter_count = pushed_parameters;
	}
	return duckdb::RebindQueryInfo::DO_NOT_REBIND;
}

namespace {

struct AddStateCallback : public duckdb::ExtensionCallback {
	void OnConnectionOpened(ClientContext &context) override {
		RemoteClientState::Get(context);
	}
};

} // namespace

void RegisterRemoteClientState(duckdb::ExtensionLoader &loader) {
	auto &database = loader.GetDatabaseInstance();
	duckdb::ExtensionCallback::Register(duckdb::DBConfig::GetConfig(database),
	                                    duckdb::make_shared_ptr<AddStateCallback>());
	for (auto &context : duckdb::ConnectionManager::Get(database).GetConnectionList()) {
		RemoteClientState::Get(*context);
	}
}

} // namespace sql
} // namespace quack
