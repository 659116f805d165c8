#include "test_client.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test_node.hpp"

namespace quack {
namespace transport {

TestClient::TestClient(uint16_t port) {
	file_descriptor = socket(AF_INET, SOCK_STREAM, 0);
	sockaddr_in address {};
	address.sin_family = AF_INET;
	address.sin_port = htons(port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	auto connected = connect(file_descriptor, reinterpret_cast<sockaddr *>(&address), sizeof(address));
	REQUIRE(connected == 0);
	timeval limit {static_cast<time_t>(TEST_DEADLINE / NS_PER_SECOND), 0};
	setsockopt(file_descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

TestClient::~TestClient() {
	close(file_descriptor);
}

bool TestClient::StartTls(const std::string &alpn_offer, const TlsFiles &identity) {
	context.reset(SSL_CTX_new(TLS_client_method()));
	if (!identity.cert_file.empty()) {
		REQUIRE(SSL_CTX_use_certificate_chain_file(context.get(), identity.cert_file.c_str()) == 1);
		REQUIRE(SSL_CTX_use_PrivateKey_file(context.get(), identity.key_file.c_str(), SSL_FILETYPE_PEM) == 1);
	}
	ssl.reset(SSL_new(context.get()));
	if (!alpn_offer.empty()) {
		SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const unsigned char *>(alpn_offer.data()),
		                    static_cast<unsigned int>(alpn_offer.size()));
	}
	SSL_set_fd(ssl.get(), file_descriptor);
	ERR_clear_error();
	return SSL_connect(ssl.get()) == 1;
}

std::string TestClient::Alpn() const {
	const unsigned char *name = nullptr;
	unsigned int size = 0;
	SSL_get0_alpn_selected(ssl.get(), &name, &size);
	return std::string(reinterpret_cast<const char *>(name), size);
}

std::string TestClient::ServerFingerprint() const {
	return FactsOf(SSL_get0_peer_certificate(ssl.get())).sha256;
}

bool TestClient::Send(const std::string &bytes) {
	ERR_clear_error();
	if (ssl) {
		return SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
	}
	return send(file_descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

std::string TestClient::ReceiveSome() {
	char buffer[16 * 1024];
	ERR_clear_error();
	auto count = ssl ? SSL_read(ssl.get(), buffer, sizeof(buffer)) : recv(file_descriptor, buffer, sizeof(buffer), 0);
	return std::string(buffer, count > 0 ? static_cast<size_t>(count) : 0);
}

std::string TestClient::ReceiveAll() {
	std::string all;
	for (auto part = ReceiveSome(); !part.empty(); part = ReceiveSome()) {
		all += part;
	}
	return all;
}

std::string TestClient::ReceiveUntil(const std::string &text) {
	std::string all;
	while (all.find(text) == std::string::npos) {
		auto part = ReceiveSome();
		if (part.empty()) {
			break;
		}
		all += part;
	}
	return all;
}

} // namespace transport
} // namespace quack
