//! TLS over byte buffers: ciphertext in, ciphertext out, no socket. One owner thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quack/transport/tls_context.hpp"

namespace quack {
namespace transport {

//! OpenSSL verify callback: lets every handshake finish and keeps the chain errors for TlsChannel::Presented. Whoever
//! uses a channel MUST check them before trusting the other side.
int RecordChainErrors(int is_ok, X509_STORE_CTX *store);
//! Adds one error in words, without doubles, bounded.
void AddChainError(std::vector<std::string> &errors, int code, int depth);

class TlsChannel {
public:
	enum class Side { Client, Server };
	enum class Progress { Done, NeedsBytes, Failed };

	//! `server_name` goes into SNI on the client side.
	TlsChannel(std::shared_ptr<const TlsContext> context_p, Side side, const std::string &server_name);

	//! Bytes from the socket.
	void Feed(ByteView ciphertext);
	//! Drives the handshake on the bytes fed so far. Failed: ErrorText says why.
	Progress Handshake();
	//! Appends all plaintext that is available. IoError: broken record; is_end: the other side closed orderly.
	Status Read(std::string &plaintext, bool &is_end);
	//! Up to `size` bytes; 0 = more ciphertext is needed, or is_end.
	Result<size_t> ReadSome(char *buffer, size_t size, bool &is_end);
	Status Write(ByteView plaintext);
	//! Queues the closing alert.
	void WriteClose();
	//! Appends the ciphertext to be sent.
	void TakeOutput(std::string &ciphertext);

	const std::string &ErrorText() const {
		return error_text;
	}
	//! "h2", "http/1.1" or empty. After the handshake.
	std::string Alpn() const;
	//! What the other side showed, with its chain errors. After the handshake.
	PresentedCertificate Presented() const;

private:
	std::shared_ptr<const TlsContext> context;
	std::unique_ptr<std::vector<std::string>> chain_errors; //! stable address for the callback
	SslPtr ssl;
	BIO *incoming = nullptr; //! owned by ssl
	BIO *outgoing = nullptr; //! owned by ssl
	std::string error_text;
};

} // namespace transport
} // namespace quack
