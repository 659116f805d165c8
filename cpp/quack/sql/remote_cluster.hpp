//! One attachment's view of the cluster: its nodes, its sessions on them, heartbeats, and what replies tell about the
//! schema and the log. Speaks whole Quack messages; knows nothing of SQL.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/sql/commit_positions.hpp"
#include "quack/sql/quack_message.hpp"
#include "quack/sql/remote_http.hpp"
#include "quack/sql/remote_options.hpp"

namespace quack {
namespace sql {

//! A connection id on one node. Used by one statement or transaction at a time.
struct RemoteSession {
	RemoteEndpoint endpoint;
	std::string connection_id;         //! capability: never printed
	std::string search_schema;         //! schema last set by USE; empty = the node's default
	bool is_serializable = false;      //! isolation last set; the node's default is snapshot
	std::atomic<int64_t> last_use {0}; //! MonotonicNs
	std::atomic<bool> lost {false};    //! the node forgot it or went away
	int64_t released_at = 0;           //! when it became idle; guarded by the cluster's lock
	std::mutex exchange;               //! one request at a time; held during IO by the sender only
};

//! One message out.
struct RemoteRequest {
	std::string body;
	std::string request_id;  //! empty = none
	bool repeat = false;     //! it was sent before under the same request id
	std::string consistency; //! empty = the node's own default
	bool describe = false;
	bool send_deadline = true;
};

//! One message back: either bytes of a normal reply or a decoded error.
struct RemoteReply {
	std::string bytes;
	bool is_error = false;
	ErrorResponse error;

	//! ErrorCodeName() text that the node attached to its error, "" if none.
	std::string ErrorCodeText() const;
	//! The node says: send the same request again, here or elsewhere.
	bool IsRetryable() const;
	//! The statement lost against another writer, or was planned on an old schema: it was rolled back and may be run
	//! again as a new statement.
	bool IsConflict() const;
	//! The connection id is unknown to the node: lease expired or node restarted.
	bool IsSessionLost() const;
	//! What became of the request is not known to the node either.
	bool IsOutcomeUnknown() const;
	//! How long an overloaded node asks to be left alone; 0 when it does not say.
	uint64_t RetryAfterMs() const;
};

class RemoteCluster {
public:
	//! Throws InvalidInputException when the certificate files are unusable. No network.
	static std::shared_ptr<RemoteCluster> Create(RemoteOptions options, std::string platform);
	~RemoteCluster();

	//! An idle or new session on the current node; walks over the nodes until the budget ends, or once when
	//! `one_round`. Failures: Unavailable, Unauthorized (final), Cancelled.
	Result<std::shared_ptr<RemoteSession>> Acquire(const RemoteBudget &budget, bool one_round = false);
	//! Gives a session back whose transaction is over. A lost one is dropped.
	void Release(std::shared_ptr<RemoteSession> session);
	//! Ends a session whose state is not known to be clean: DISCONNECT, best effort.
	void Discard(std::shared_ptr<RemoteSession> session);
	//! The node did not answer: the next Acquire starts at another one.
	void MoveOn(const RemoteEndpoint &failed);

	//! One request on a session. A transport failure marks the session lost.
	Result<RemoteReply> Exchange(RemoteSession &session, const RemoteRequest &request, const RemoteBudget &budget);
	//! Best effort CANCEL on its own connection, bounded to two seconds.
	void Cancel(const RemoteSession &session, duckdb::hugeint_t query_uuid);

	//! Stops heartbeats and disconnects every idle session. Idempotent.
	void Shutdown();

	const RemoteOptions &Options() const {
		return options;
	}
	//! Newest catalog version any reply carried; 0 before the first reply.
	uint64_t CatalogVersion() const {
		return catalog_version.load();
	}
	//! Whether the node answers HEADER_DESCRIBE.
	bool IsOurs() const {
		return is_ours.load();
	}
	std::string ServerVersion() const;

	//! 128 random bits for query uuids.
	static duckdb::hugeint_t RandomUuid();
	//! A new request id as text; its base is the newest one that a reply carried.
	std::string NewRequestId() const;

private:
	explicit RemoteCluster(RemoteOptions options);

	Result<std::shared_ptr<RemoteSession>> OpenSession(const RemoteEndpoint &endpoint, const RemoteBudget &budget);
	Result<RemoteReply> Send(const RemoteEndpoint &endpoint, const RemoteRequest &request, const RemoteBudget &budget);
	void LearnFrom(const HttpReply &reply);
	void LearnVoters(const std::string &text);
	std::shared_ptr<RemoteSession> TakeIdle();
	RemoteEndpoint Current() const;
	size_t NodeCount() const;
	void HeartbeatLoop();
	void Heartbeat(RemoteSession &session);

	RemoteOptions options;
	std::string platform;
	std::unique_ptr<HttpPool> http;
	std::atomic<uint64_t> catalog_version {0};
	//! Newest that any reply carried.
	std::atomic<uint64_t> request_base {0};
	SeenPositions positions;
	std::atomic<bool> is_ours {false};
	std::atomic<uint64_t> lease_s {30};

	mutable std::mutex lock; //! guards the five below; never held during IO
	std::vector<RemoteEndpoint> nodes;
	size_t current = 0;
	std::vector<std::shared_ptr<RemoteSession>> idle;
	std::vector<std::weak_ptr<RemoteSession>> sessions;
	std::string server_version;

	std::mutex stop_lock; //! makes changes of stopping visible to the waiting heartbeat thread
	std::condition_variable stop_signal;
	std::atomic<bool> stopping {false};
	std::thread heartbeat_thread;
};

} // namespace sql
} // namespace quack
