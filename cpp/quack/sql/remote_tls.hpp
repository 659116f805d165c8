//! TLS for outgoing connections: loads the files once, checks the node's certificate, explains refusals.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quack/common/status.hpp"
#include "quack/sql/remote_options.hpp"

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

namespace quack {
namespace sql {

class TlsClientContext {
public:
	static Result<std::unique_ptr<TlsClientContext>> Create(const RemoteOptions &options);
	~TlsClientContext();

	//! A new client session for `host`, with SNI when it is a name. Freed by the caller.
	SSL *NewSession(const std::string &host) const;

	//! After the handshake: the certificate's SAN must hold one of `accepted`. The error says both sides.
	Status CheckPeer(SSL *ssl, const std::string &host, const std::vector<std::string> &accepted) const;

	//! Why SSL_connect failed, with the names, dates and the fix. Clears the thread's OpenSSL error queue.
	Status ExplainHandshakeFailure(SSL *ssl, const std::string &endpoint) const;

private:
	TlsClientContext() = default;
	SSL_CTX *context = nullptr;
	std::string ca_file;
	std::string cert_file;
};

} // namespace sql
} // namespace quack
