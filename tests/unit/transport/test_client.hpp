//! A blocking client that is no transport: raw bytes, TLS with any certificate and ALPN, for the tests of the port.
#pragma once

#include <string>

#include "quack/transport/openssl_handle.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace transport {

class TestClient {
public:
	explicit TestClient(uint16_t port);
	~TestClient();

	//! TLS with an ALPN offer in wire form ("\x02h2"), empty = none; certificate files may be empty. False on failure.
	bool StartTls(const std::string &alpn_offer, const TlsFiles &identity = TlsFiles());
	std::string Alpn() const;
	//! SHA-256 of the server's certificate.
	std::string ServerFingerprint() const;
	//! False when the connection is gone.
	bool Send(const std::string &bytes);
	//! At least one byte, or empty at the end of the connection or after the test deadline.
	std::string ReceiveSome();
	//! Until the end of the connection or the test deadline.
	std::string ReceiveAll();
	//! Until `text` came, the end, or the deadline.
	std::string ReceiveUntil(const std::string &text);

private:
	int file_descriptor = -1;
	SslCtxPtr context;
	SslPtr ssl;
};

} // namespace transport
} // namespace quack
