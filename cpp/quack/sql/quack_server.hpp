//! The Quack protocol on this node: one request message in, one response message out. Owns sessions and authentication.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "quack/sql/authenticator.hpp"
#include "quack/sql/http_front.hpp"
#include "quack/sql/quack_message.hpp"
#include "quack/sql/server_context.hpp"
#include "quack/sql/session_registry.hpp"

namespace quack {
namespace sql {

//! Thread-safe.
class QuackServer final : public HttpHandler {
public:
	QuackServer(ServerContext context, AuthenticationConfig authentication);
	~QuackServer() override;

	//! Serves one connection until it ends; the thread is the caller's.
	void ServeConnection(const std::shared_ptr<transport::ByteStream> &stream);
	//! Refuses new work, ends all sessions and connections. Idempotent.
	void Stop();

	const SessionRegistry &Sessions() const {
		return registry;
	}
	size_t ConnectionCount() const;

	HttpServerReply HandlePost(const HttpServerRequest &request) override;
	int AllowLargeBody(const std::string &prefix, uint64_t bytes) override;
	void EndLargeBody(uint64_t bytes) override;
	std::string Banner() override;

private:
	std::string Dispatch(const HttpServerRequest &request, MessageDecoder &message);
	//! The message is not urgent enough for a connection of the reserve.
	[[noreturn]] void RefuseOnReserve() const;
	std::string OpenSession(const HttpServerRequest &request, MessageDecoder &message);
	//! Empty = the built-in token check decides.
	bool CheckByHook(const std::string &session_id, const std::string &token, bool &accepted);
	//! The text to run; throws when denied.
	std::string AuthorizeByHook(const std::string &session_id, const std::string &sql);
	std::string DispatchInSession(const HttpServerRequest &request, MessageDecoder &message, Session &session);
	std::string Prepare(const HttpServerRequest &request, MessageDecoder &message, Session &session);
	std::string Fetch(const HttpServerRequest &request, MessageDecoder &message, Session &session);
	std::string Append(const HttpServerRequest &request, MessageDecoder &message, Session &session);
	std::string SendData(const HttpServerRequest &request, MessageDecoder &message, Session &session);
	StatementOptions OptionsOf(const HttpServerRequest &request) const;
	void AddClusterHeaders(HttpServerReply &reply) const;

	const ServerContext context;
	Authenticator authenticator;
	SessionRegistry registry;
	HttpFront front;

	mutable std::mutex lock; //! guards connections
	std::set<std::shared_ptr<transport::ByteStream>> connections;
	std::atomic<bool> stopped {false};
};

} // namespace sql
} // namespace quack
