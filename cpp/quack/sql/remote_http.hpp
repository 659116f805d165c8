//! HTTP/1.1 over TCP or TLS for the client side, written for what the client needs: a wait that ends at a deadline or
//! at an interrupt within milliseconds, a keep-alive pool, and certificate errors in words. Failures are values.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "quack/common/clock.hpp"
#include "quack/common/status.hpp"
#include "quack/sql/remote_options.hpp"

namespace quack {
namespace sql {

//! How long a request may take and who may stop it.
struct RemoteBudget {
	MonotonicNs deadline = 0; //! on SystemClock; 0 = no deadline
	//! True when the user wants to stop; called from the waiting thread about every 20 ms. May be empty.
	std::function<bool()> interrupted;

	static RemoteBudget ForMs(uint64_t timeout_ms, std::function<bool()> interrupted = {});
	bool Expired() const;
	bool Interrupted() const {
		return interrupted && interrupted();
	}
	//! Milliseconds left, at least 0; a large number without deadline.
	uint64_t LeftMs() const;
};

struct HttpReply {
	int status = 0;
	std::map<std::string, std::string> headers; //! names in lower case
	std::string body;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

//! Names a node's certificate may carry besides the host itself. Thread-safe; grows as the cluster tells its voters.
class AcceptedNames {
public:
	void Add(const std::string &name);
	std::vector<std::string> List() const;

private:
	mutable std::mutex lock; //! guards names; held for copies only
	std::vector<std::string> names;
};

class TlsClientContext;

//! Idle keep-alive connections of one attachment. Thread-safe; no lock is held during IO.
class HttpPool {
public:
	//! Reads the certificate files; Unauthorized or InvalidArgument with the file name when they are unusable.
	static Result<std::unique_ptr<HttpPool>> Create(const RemoteOptions &options);
	~HttpPool();

	//! One POST /quack. Codes: Unavailable = no connection could be made, nothing was sent; OutcomeUnknown = sent, but
	//! no complete answer came; Unauthorized = TLS identity refused by either side (final); Cancelled = interrupted;
	//! DeadlineExceeded = the budget ended while waiting for the answer; Incompatible = the peer speaks no HTTP.
	Result<HttpReply> Post(const RemoteEndpoint &endpoint, const HttpHeaders &headers, const std::string &body,
	                       const RemoteBudget &budget);

	AcceptedNames &Names() {
		return names;
	}
	//! Closes idle connections.
	void Clear();

private:
	HttpPool();
	class Connection;
	struct Idle;

	std::unique_ptr<Connection> TakeIdle(const RemoteEndpoint &endpoint);
	void PutIdle(const RemoteEndpoint &endpoint, std::unique_ptr<Connection> connection);

	std::unique_ptr<TlsClientContext> tls; //! null = plain HTTP
	AcceptedNames names;
	std::mutex lock; //! guards idle; never held during IO
	std::vector<Idle> idle;
};

} // namespace sql
} // namespace quack
