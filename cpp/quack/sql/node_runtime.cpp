#include "quack/sql/node_runtime.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "duckdb/storage/object_cache.hpp"
#include "quack/node/transaction_entry.hpp"
#include "quack/catalog/effects.hpp"
#include "quack/common/log.hpp"
#include "quack/node/member_id.hpp"
#include "quack/sql/read_barrier.hpp"
#include "quack/sql/sql_error.hpp"
#include "quack/storage/segmented_log.hpp"

namespace quack {
namespace sql {

namespace {

constexpr const char *SLOT_KEY = "quack_node_runtime";
//! How long a reseed waits for its turn: longer than a new leader lets nobody go.
constexpr MonotonicNs LEAVE_TIMEOUT = 2 * node::RESEED_GRANT;
constexpr MonotonicNs VIEW_AGE_MAX = 50 * NS_PER_MS;

//! Where the instance keeps its node. `lock` is held while a node starts or stops.
struct RuntimeSlot final : public duckdb::ObjectCacheEntry {
	std::mutex lock;
	std::shared_ptr<NodeRuntime> runtime;
	std::mutex pointer_lock; //! guards `runtime` alone, so that status never waits for a start or stop

	static std::string ObjectType() {
		return SLOT_KEY;
	}
	std::string GetObjectType() override {
		return ObjectType();
	}
	duckdb::optional_idx GetEstimatedCacheMemory() const override {
		return duckdb::optional_idx();
	}
	std::shared_ptr<NodeRuntime> Load() {
		std::lock_guard<std::mutex> guard(pointer_lock);
		return runtime;
	}
	std::shared_ptr<NodeRuntime> Exchange(std::shared_ptr<NodeRuntime> other) {
		std::lock_guard<std::mutex> guard(pointer_lock);
		runtime.swap(other);
		return other;
	}
};

duckdb::shared_ptr<RuntimeSlot> SlotOf(duckdb::DatabaseInstance &db) {
	return db.GetObjectCache().GetOrCreate<RuntimeSlot>(SLOT_KEY);
}

} // namespace

Status NodeRuntime::Start(duckdb::DatabaseInstance &db, const std::string &config_json) {
	auto config = ParseNodeConfig(config_json);
	if (!config.IsOk()) {
		return config.GetStatus();
	}
	auto slot = SlotOf(db);
	std::lock_guard<std::mutex> guard(slot->lock);
	if (auto running = slot->Load()) {
		return Status(ErrorCode::AlreadyExists,
		              "node '" + running->Config().node_id +
		                  "' runs in this DuckDB instance already; CALL quack_node_stop() first");
	}
	SetLogSink(LogSink(), config.Value().log_level);
	auto runtime = std::make_shared<NodeRuntime>(db, std::move(config.Value()));
	auto status = runtime->Build();
	if (!status.IsOk()) {
		runtime->Shutdown();
		return status;
	}
	Log(LogLevel::Info, "node", "node_started",
	    {{"node_id", runtime->config.node_id},
	     {"cluster_id", runtime->config.cluster_id},
	     {"port", std::to_string(runtime->ListenPort())}});
	slot->Exchange(std::move(runtime));
	return Status::Ok();
}

Status NodeRuntime::Stop(duckdb::DatabaseInstance &db) {
	auto slot = SlotOf(db);
	std::lock_guard<std::mutex> guard(slot->lock);
	auto runtime = slot->Exchange(nullptr);
	if (!runtime) {
		return Status(ErrorCode::NotFound,
		              "no node runs in this DuckDB instance; CALL quack_node_start(...) starts one");
	}
	runtime->Shutdown();
	Log(LogLevel::Info, "node", "node_stopped", {{"node_id", runtime->config.node_id}});
	return Status::Ok();
}

std::shared_ptr<NodeRuntime> NodeRuntime::Find(duckdb::DatabaseInstance &db) {
	return SlotOf(db)->Load();
}

std::shared_ptr<NodeRuntime> NodeRuntime::Get(duckdb::DatabaseInstance &db) {
	auto runtime = Find(db);
	if (!runtime) {
		ThrowCoded(Status(ErrorCode::NotFound,
		                  "no node runs in this DuckDB instance; CALL quack_node_start(...) starts "
		                  "one, or name an attached catalog where the function takes one"));
	}
	return runtime;
}

NodeRuntime::NodeRuntime(duckdb::DatabaseInstance &db_p, NodeConfig config_p) : db(db_p), config(std::move(config_p)) {
}

NodeRuntime::~NodeRuntime() {
	Shutdown();
}

node::RaftEngineConfig NodeRuntime::EngineConfig() const {
	node::RaftEngineConfig result;
	result.cluster_id = config.cluster_id;
	result.node_id = config.node_id;
	result.members = config.peers;
	for (auto &member : result.members) {
		member.incarnation = member.node_id == config.node_id ? directory->Incarnation() : 0;
	}
	result.met = directory->Met();
	result.replaces = directory->Replaces();
	result.restored_from = directory->IsFormed() ? std::string() : directory->RestoredFrom();
	result.save_met = [this](const std::map<std::string, uint64_t> &met) {
		return directory->SaveMet(met);
	};
	result.mark_formed = [this] {
		return directory->MarkFormed();
	};
	result.duckdb_version = QUACK_DUCKDB_VERSION;
	result.storage_version = static_cast<uint64_t>(duckdb::StorageVersion::V2_0_0);
	// Entries are always written in the newest format: a node that does not read it is not let in.
	result.entry_format_max = std::max(catalog::ENTRY_FORMAT_VERSION, node::TRANSACTION_ENTRY_VERSION);
	result.entry_format_min = result.entry_format_max;
	result.temp_dir = directory->IncomingPath();
	result.log_dir = directory->LogPath();
	result.election_timeout = static_cast<MonotonicNs>(config.election_timeout_ms) * NS_PER_MS;
	result.heartbeat_interval = static_cast<MonotonicNs>(config.heartbeat_interval_ms) * NS_PER_MS;
	result.checkpoint_log_bytes = config.checkpoint_log_bytes;
	result.checkpoint_log_entries = config.checkpoint_log_entries;
	result.checkpoint_interval = static_cast<MonotonicNs>(config.checkpoint_interval_ms) * NS_PER_MS;
	result.checkpoint_idle = static_cast<MonotonicNs>(config.checkpoint_idle_ms) * NS_PER_MS;
	result.log_tail_bytes = config.log_tail_bytes;
	result.log_tail_entries = config.log_tail_entries;
	result.snapshot_bytes_per_second = config.snapshot_bytes_per_second;
	return result;
}

transport::TransportConfig NodeRuntime::MakeTransportConfig() const {
	transport::TransportConfig result;
	result.node_id = config.node_id;
	result.listen_host = config.listen_host;
	result.listen_port = static_cast<uint16_t>(config.port);
	result.tls = config.tls;
	result.plaintext = config.plaintext;
	result.byte_streams_max = config.limits.connections_max + config.limits.connections_reserve;
	return result;
}

ServerContext NodeRuntime::MakeServerContext() {
	ServerContext context;
	context.db = &db;
	context.catalog = catalog::CATALOG_NAME;
	context.cluster_id = config.cluster_id;
	context.node_id = config.node_id;
	context.replica = replica.get();
	context.engine = engine.get();
	context.contention = contention.get();
	context.admission = admission.get();
	context.limits = config.limits;
	context.leader = [this] {
		return Leader();
	};
	context.voters = [this] {
		return Voters();
	};
	return context;
}

Status NodeRuntime::Build() {
	auto opened_directory = DataDirectory::Open(config.data_dir, config.cluster_id, config.node_id);
	if (!opened_directory.IsOk()) {
		return opened_directory.GetStatus();
	}
	directory = std::move(opened_directory.Value());
	files = std::make_unique<storage::PosixFileSystem>();
	auto status = OpenLog();
	if (status.IsOk()) {
		status = CheckLogIsThere();
	}
	if (status.IsOk()) {
		status = OpenReplica();
	}
	if (status.IsOk()) {
		status = CheckRestored();
	}
	if (!status.IsOk()) {
		return status;
	}

	auto engine_config = EngineConfig();
	// The server is made last; until the engine starts the transport, no stream can arrive.
	gateway = std::make_unique<node::PeerGateway>(engine_config, [this](std::shared_ptr<transport::ByteStream> stream) {
		server->ServeConnection(stream);
	});
	transport = transport::MakeHttp2Transport(MakeTransportConfig(), *gateway);
	engine = std::make_unique<node::RaftEngine>(engine_config, *log, *transport, *gateway, *replica, clock);
	replica->SetEngine(engine.get());
	contention = std::make_unique<ContentionQueue>([this] { return replica->Statistics().foreign_conflicts; });
	admission = std::make_unique<Admission>(config.limits.admission);
	AuthenticationConfig authentication;
	authentication.token = config.token;
	authentication.accept_client_certificates = config.accept_client_certificates;
	authentication.failures_burst = config.limits.failed_logins_burst;
	authentication.failures_per_second = config.limits.failed_logins_per_second;
	server = std::make_unique<QuackServer>(MakeServerContext(), authentication);
	auto distrusted = directory->Distrusted();
	if (!distrusted.empty()) {
		// A restart does not make a wrong state right.
		engine->LatchDegraded(distrusted);
	}
	return engine->Start();
}

//! A log that is damaged before its acknowledged end is of no use to a node with peers: it gets its data from them, as
//! another member. Without peers it may be all there is, and is left alone.
Status NodeRuntime::OpenLog() {
	storage::LogOptions options;
	options.directory = directory->LogPath();
	options.segment_bytes = config.log_segment_bytes;
	options.cache_bytes = config.log_cache_bytes;
	auto opened = storage::OpenSegmentedLog(*files, options);
	if (!opened.IsOk() && opened.GetStatus().Code() == ErrorCode::Corruption) {
		auto &damage = opened.GetStatus();
		if (!HasPeers()) {
			return Status(ErrorCode::Corruption,
			              damage.Message() + ". Node '" + config.node_id +
			                  "' has no peers to get its data from; nothing was changed. To see all damage: quack log "
			                  "verify " +
			                  directory->LogPath() + "; to go on, restore a backup into an empty data_dir");
		}
		auto moved = directory->Quarantine(DataDirectory::Damage::Log, damage.Message());
		if (!moved.IsOk()) {
			return moved.GetStatus();
		}
		Log(LogLevel::Error, "node", "damaged_log_moved_aside",
		    {{"message", damage.Message()}, {"moved_to", moved.Value()}});
		opened = storage::OpenSegmentedLog(*files, options);
	}
	if (!opened.IsOk()) {
		return opened.GetStatus();
	}
	log = std::move(opened.Value());
	return Status::Ok();
}

Status NodeRuntime::OpenReplica() {
	catalog::ReplicaOptions options;
	options.path = directory->CatalogFile();
	options.cluster_id = config.cluster_id;
	options.node_id = config.node_id;
	options.checkpoint_writer_patience = static_cast<MonotonicNs>(config.checkpoint_writer_patience_ms) * NS_PER_MS;
	options.checkpoint_reader_patience = static_cast<MonotonicNs>(config.checkpoint_reader_patience_ms) * NS_PER_MS;
	options.member = node::MakeNodeId(config.node_id, directory->Incarnation());
	options.checksum_interval = static_cast<MonotonicNs>(config.checksum_interval_ms) * NS_PER_MS;
	options.split_bytes = static_cast<size_t>(config.transaction_split_bytes);
	options.stream_patience = static_cast<MonotonicNs>(config.transaction_patience_ms) * NS_PER_MS;
	options.on_divergence = [this](const std::string &reason) {
		auto status = directory->Distrust(reason);
		if (!status.IsOk()) {
			Log(LogLevel::Error, "node", "distrust_not_recorded", {{"message", status.Message()}});
		}
	};
	auto asked = MoveCatalogWhenAsked();
	if (!asked.IsOk()) {
		return asked;
	}
	auto opened = catalog::ReplicatedDatabase::Open(db, options);
	if (!opened.IsOk() && opened.GetStatus().Code() == ErrorCode::Corruption) {
		auto &damage = opened.GetStatus();
		if (!CanDoWithoutCatalog()) {
			return Status(ErrorCode::Corruption,
			              damage.Message() + ". Node '" + config.node_id +
			                  "' has no peers to get its data from, and its log does not reach back to the beginning; "
			                  "nothing was changed. To go on, restore a backup into an empty data_dir");
		}
		auto moved = directory->Quarantine(DataDirectory::Damage::Catalog, damage.Message());
		if (!moved.IsOk()) {
			return moved.GetStatus();
		}
		Log(LogLevel::Error, "node", "damaged_catalog_moved_aside",
		    {{"message", damage.Message()}, {"moved_to", moved.Value()}});
		opened = catalog::ReplicatedDatabase::Open(db, options);
	}
	if (!opened.IsOk()) {
		return opened.GetStatus();
	}
	replica = std::move(opened.Value());
	return Status::Ok();
}

Status NodeRuntime::MoveCatalogWhenAsked() {
	auto why = directory->ReseedAsked();
	if (why.empty()) {
		return Status::Ok();
	}
	if (!CanDoWithoutCatalog()) {
		return Status(ErrorCode::Unavailable, "node '" + config.node_id +
		                                          "' was told to get its data again, but it has no peers and its log "
		                                          "does not reach back to the beginning; nothing was changed. "
		                                          "Name the peers in its configuration");
	}
	auto moved = directory->Quarantine(DataDirectory::Damage::Catalog, why);
	if (!moved.IsOk()) {
		return moved.GetStatus();
	}
	Log(LogLevel::Warn, "node", "reseeding", {{"message", why}, {"moved_to", moved.Value()}});
	return Status::Ok();
}

Status NodeRuntime::Reseed() {
	if (!HasPeers()) {
		return Status(ErrorCode::InvalidArgument,
		              "node '" + config.node_id + "' has no peers to get its data from; nothing was changed");
	}
	auto group = engine->GetStatus().front();
	if (group.is_leader && !group.degraded) {
		return Status(ErrorCode::Unavailable, "node '" + config.node_id +
		                                          "' leads, and the data has to come from another leader; nothing was "
		                                          "changed. First run: quack cluster leader stepdown");
	}
	SystemClock steady;
	auto asked = steady.Now();
	// One that is out of service already is of no use to the others: nobody misses it.
	auto allowed = group.degraded ? Status::Ok() : AskToLeave(asked);
	if (!allowed.IsOk()) {
		return allowed;
	}
	auto why = directory->Distrusted();
	if (why.empty() && group.degraded) {
		why = group.reason;
	}
	auto status = directory->AskReseed("The node was told to get its data again (quack cluster node reseed)" +
	                                   (why.empty() ? "." : "; it was out of service: " + why));
	if (!status.IsOk()) {
		return status;
	}
	if (!group.degraded && steady.Now() - asked > node::RESEED_GRANT * 3 / 4) {
		status = directory->AskReseed("");
		return status.IsOk() ? Status(ErrorCode::Unavailable, "the order took too long to write down; nothing was "
		                                                      "changed, retry")
		                     : status;
	}
	engine->LatchDegraded("node '" + config.node_id + "' restarts to get its data again");
	is_restart_due = true;
	return Status::Ok();
}

//! `asked` becomes the time of the question that was answered with yes.
Status NodeRuntime::AskToLeave(MonotonicNs &asked) {
	node::MemberChange change;
	change.action = node::MemberAction::Reseed;
	change.name = config.node_id;
	SystemClock steady;
	auto deadline = steady.Now() + LEAVE_TIMEOUT;
	while (true) {
		asked = steady.Now();
		auto answer = ChangeMember(*engine, change, node::RESEED_GRANT / 2);
		auto is_passing = !answer.IsOk() && answer.GetStatus().Code() == ErrorCode::Unavailable;
		if (answer.IsOk() || !is_passing || steady.Now() > deadline) {
			return answer.IsOk()
			           ? Status::Ok()
					   : Status(answer.GetStatus().Code(), "node '" + config.node_id + "' is not reseeded: " +
					                                           answer.GetStatus().Message() + "; nothing was changed");
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
	}
}

bool NodeRuntime::HasPeers() const {
	return std::any_of(config.peers.begin(), config.peers.end(),
	                   [this](const node::MemberConfig &peer) { return peer.node_id != config.node_id; });
}

//! A whole log replays; what it lacks comes from the members it knows.
bool NodeRuntime::CanDoWithoutCatalog() const {
	auto groups = log->Recovered();
	return std::all_of(groups.begin(), groups.end(), [](const storage::RecoveredGroup &group) {
		auto &membership = group.snapshot.membership;
		return group.snapshot.index == 0 || membership.voters.size() + membership.learners.size() > 1;
	});
}

//! A node that has voted must not come back as one that has not.
Status NodeRuntime::CheckLogIsThere() const {
	if (!directory->IsFormed() || !log->Recovered().empty()) {
		return Status::Ok();
	}
	return Status(ErrorCode::Corruption,
	              "'" + directory->LogPath() + "' is empty, but node '" + config.node_id +
	                  "' has taken part in its cluster with this data_dir: its votes are lost. Restore the log, or "
	                  "empty the whole data_dir, start the node and run: quack cluster node replace " +
	                  config.node_id);
}

//! What the other first members are told that this node holds.
Status NodeRuntime::CheckRestored() const {
	if (directory->IsFormed() || directory->RestoredFrom().empty()) {
		return Status::Ok();
	}
	raft::LogIndex applied = 0;
	for (auto &position : replica->Applied()) {
		applied = position.group == raft::ROOT_GROUP ? position.index : applied;
	}
	if (applied == directory->RestoredIndex()) {
		return Status::Ok();
	}
	return Status(ErrorCode::Corruption, "backup " + directory->RestoredFrom() + " was restored into data_dir '" +
	                                         config.data_dir + "' at index " +
	                                         std::to_string(directory->RestoredIndex()) +
	                                         ", but its catalog stands at index " + std::to_string(applied) +
	                                         ": empty the data_dir and run quack restore again");
}

void NodeRuntime::Shutdown() {
	std::lock_guard<std::mutex> guard(stop_lock);
	if (stopped) {
		return;
	}
	stopped = true;
	if (engine && server && Leader() == config.node_id && Voters().size() > 1) {
		// Before the sessions end, so that their clients find a leader at once. The engine tries again when it stops.
		(void)TransferLeadership(*engine, raft::ROOT_GROUP, std::string(), 2 * NS_PER_SECOND).IsOk();
	}
	if (server) {
		server->Stop();
	}
	if (replica) {
		replica->StopAudit();
	}
	if (engine) {
		engine->Stop(static_cast<MonotonicNs>(config.stop_timeout_ms) * NS_PER_MS);
	}
	if (replica) {
		replica->SetEngine(nullptr);
		replica->Close();
	}
}

//! With view_lock held.
void NodeRuntime::RefreshView() {
	auto now = clock.Now();
	if (view_read != 0 && now - view_read <= VIEW_AGE_MAX) {
		return;
	}
	leader.clear();
	voters.clear();
	for (auto &member : engine->GetMembers()) {
		if (member.is_leader) {
			leader = member.node_id;
		}
		if (member.role == "voter") {
			voters.push_back({member.node_id, member.host, member.port});
		}
	}
	view_read = now;
}

std::string NodeRuntime::Leader() {
	std::lock_guard<std::mutex> guard(view_lock);
	RefreshView();
	return leader;
}

std::vector<VoterAddress> NodeRuntime::Voters() {
	std::lock_guard<std::mutex> guard(view_lock);
	RefreshView();
	return voters;
}

} // namespace sql
} // namespace quack
