//! A node inside a DuckDB process: builds the layers in order, starts them, stops them in reverse. At most one per
//! DuckDB instance; found through the instance.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "duckdb.hpp"
#include "quack/catalog/replicated_database.hpp"
#include "quack/common/clock.hpp"
#include "quack/node/peer_gateway.hpp"
#include "quack/node/raft_engine.hpp"
#include "quack/sql/data_directory.hpp"
#include "quack/sql/node_config.hpp"
#include "quack/sql/quack_server.hpp"
#include "quack/storage/file_system.hpp"
#include "quack/storage/log_store.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace sql {

//! Thread-safe.
class NodeRuntime {
public:
	//! Starts a node in this instance; AlreadyExists when one runs, else what a layer says.
	static Status Start(duckdb::DatabaseInstance &db, const std::string &config_json);
	//! Graceful; NotFound when none runs.
	static Status Stop(duckdb::DatabaseInstance &db);
	//! The running node or null. It lives while the pointer is held, but may stop meanwhile.
	static std::shared_ptr<NodeRuntime> Find(duckdb::DatabaseInstance &db);
	//! Find, or an exception that says what to do.
	static std::shared_ptr<NodeRuntime> Get(duckdb::DatabaseInstance &db);

	NodeRuntime(duckdb::DatabaseInstance &db, NodeConfig config);
	~NodeRuntime();

	const NodeConfig &Config() const {
		return config;
	}
	uint16_t ListenPort() const {
		return transport->ListenPort();
	}
	node::RaftEngine &Engine() {
		return *engine;
	}
	catalog::ReplicatedDatabase &Replica() {
		return *replica;
	}
	transport::Transport &GetTransport() {
		return *transport;
	}
	storage::LogStore &GetLog() {
		return *log;
	}
	const ContentionQueue &Contention() const {
		return *contention;
	}
	const Admission &GetAdmission() const {
		return *admission;
	}
	const QuackServer &Server() const {
		return *server;
	}
	//! Gives the catalog up: the node takes no part any more, and its process is to start again (IsRestartDue), which
	//! moves the catalog aside and gets the data from the log or from peers. InvalidArgument when there are none.
	Status Reseed();
	bool IsRestartDue() const {
		return is_restart_due;
	}
	//! node_id of the root group's leader, at most VIEW_AGE_MAX old; empty when unknown.
	std::string Leader();
	//! As old.
	std::vector<VoterAddress> Voters();

private:
	Status Build();
	Status CheckLogIsThere() const;
	Status CheckRestored() const;
	Status OpenLog();
	Status OpenReplica();
	Status MoveCatalogWhenAsked();
	Status AskToLeave(MonotonicNs &asked);
	bool HasPeers() const;
	bool CanDoWithoutCatalog() const;
	void RefreshView();
	void Shutdown();
	node::RaftEngineConfig EngineConfig() const;
	transport::TransportConfig MakeTransportConfig() const;
	ServerContext MakeServerContext();

	duckdb::DatabaseInstance &db;
	const NodeConfig config;
	SystemClock clock;
	std::unique_ptr<DataDirectory> directory;
	std::unique_ptr<storage::FileSystem> files;
	std::unique_ptr<storage::LogStore> log;
	std::unique_ptr<catalog::ReplicatedDatabase> replica;
	std::unique_ptr<node::PeerGateway> gateway;
	std::unique_ptr<transport::Transport> transport;
	std::unique_ptr<node::RaftEngine> engine;
	std::unique_ptr<ContentionQueue> contention;
	std::unique_ptr<Admission> admission;
	std::unique_ptr<QuackServer> server;
	std::atomic<bool> is_restart_due {false};
	std::mutex stop_lock; //! held for the whole shutdown
	bool stopped = false;

	std::mutex view_lock; //! guards the three below
	std::string leader;
	std::vector<VoterAddress> voters;
	MonotonicNs view_read = 0;
};

} // namespace sql
} // namespace quack
