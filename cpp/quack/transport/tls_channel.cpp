#include "quack/transport/tls_channel.hpp"

#include <algorithm>

namespace quack {
namespace transport {

namespace {

constexpr size_t CHAIN_ERRORS_MAX = 8;

int ErrorListIndex() {
	static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
	return index;
}

} // namespace

void AddChainError(std::vector<std::string> &errors, int code, int depth) {
	std::string text = X509_verify_cert_error_string(code);
	if (depth > 0) {
		text += " (issuer level " + std::to_string(depth) + ")";
	}
	if (errors.size() < CHAIN_ERRORS_MAX && std::find(errors.begin(), errors.end(), text) == errors.end()) {
		errors.push_back(std::move(text));
	}
}

int RecordChainErrors(int is_ok, X509_STORE_CTX *store) {
	if (!is_ok) {
		auto ssl = static_cast<SSL *>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
		auto errors = ssl ? static_cast<std::vector<std::string> *>(SSL_get_ex_data(ssl, ErrorListIndex())) : nullptr;
		if (!errors) {
			return 0; // nobody would look at the error: refuse here
		}
		AddChainError(*errors, X509_STORE_CTX_get_error(store), X509_STORE_CTX_get_error_depth(store));
	}
	return 1;
}

TlsChannel::TlsChannel(std::shared_ptr<const TlsContext> context_p, Side side, const std::string &server_name)
    : context(std::move(context_p)), chain_errors(std::make_unique<std::vector<std::string>>()) {
	auto ssl_context = side == Side::Server ? context->server.get() : context->client.get();
	ssl.reset(SSL_new(ssl_context));
	incoming = BIO_new(BIO_s_mem());
	outgoing = BIO_new(BIO_s_mem());
	QUACK_CHECK(ssl && incoming && outgoing, "out of memory for a TLS channel");
	SSL_set_bio(ssl.get(), incoming, outgoing);
	SSL_set_ex_data(ssl.get(), ErrorListIndex(), chain_errors.get());
	if (side == Side::Server) {
		SSL_set_accept_state(ssl.get());
	} else {
		SSL_set_connect_state(ssl.get());
		SSL_set_tlsext_host_name(ssl.get(), server_name.c_str());
	}
}

void TlsChannel::Feed(ByteView ciphertext) {
	while (!ciphertext.empty()) {
		auto written = BIO_write(incoming, ciphertext.data(), static_cast<int>(ciphertext.size()));
		QUACK_CHECK(written > 0, "a memory BIO takes all bytes");
		ciphertext.remove_prefix(static_cast<size_t>(written));
	}
}

TlsChannel::Progress TlsChannel::Handshake() {
	ERR_clear_error();
	auto result = SSL_do_handshake(ssl.get());
	if (result == 1) {
		return Progress::Done;
	}
	auto error = SSL_get_error(ssl.get(), result);
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
		return Progress::NeedsBytes;
	}
	error_text = TakeOpenSslErrors();
	return Progress::Failed;
}

Result<size_t> TlsChannel::ReadSome(char *buffer, size_t size, bool &is_end) {
	ERR_clear_error();
	size_t count = 0;
	if (SSL_read_ex(ssl.get(), buffer, size, &count) == 1) {
		return count;
	}
	auto error = SSL_get_error(ssl.get(), 0);
	if (error == SSL_ERROR_ZERO_RETURN) {
		is_end = true;
		return size_t(0);
	}
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
		return size_t(0);
	}
	error_text = TakeOpenSslErrors();
	return Status(ErrorCode::IoError, "TLS record refused: " + error_text);
}

Status TlsChannel::Read(std::string &plaintext, bool &is_end) {
	constexpr size_t RECORD_SIZE = 16 * 1024;
	while (!is_end) {
		auto at = plaintext.size();
		plaintext.resize(at + RECORD_SIZE);
		auto count = ReadSome(&plaintext[at], RECORD_SIZE, is_end);
		plaintext.resize(at + (count.IsOk() ? count.Value() : 0));
		if (!count.IsOk()) {
			return count.GetStatus();
		}
		if (count.Value() == 0) {
			break;
		}
	}
	return Status::Ok();
}

Status TlsChannel::Write(ByteView plaintext) {
	if (plaintext.empty()) {
		return Status::Ok();
	}
	ERR_clear_error();
	size_t written = 0;
	if (SSL_write_ex(ssl.get(), plaintext.data(), plaintext.size(), &written) == 1 && written == plaintext.size()) {
		return Status::Ok();
	}
	error_text = TakeOpenSslErrors();
	return Status(ErrorCode::IoError, "TLS write failed: " + error_text);
}

void TlsChannel::WriteClose() {
	ERR_clear_error();
	SSL_shutdown(ssl.get());
	ERR_clear_error();
}

void TlsChannel::TakeOutput(std::string &ciphertext) {
	auto pending = BIO_ctrl_pending(outgoing);
	if (pending == 0) {
		return;
	}
	auto at = ciphertext.size();
	ciphertext.resize(at + pending);
	auto count = BIO_read(outgoing, &ciphertext[at], static_cast<int>(pending));
	ciphertext.resize(at + (count > 0 ? static_cast<size_t>(count) : 0));
}

std::string TlsChannel::Alpn() const {
	const unsigned char *name = nullptr;
	unsigned int size = 0;
	SSL_get0_alpn_selected(ssl.get(), &name, &size);
	return name ? std::string(reinterpret_cast<const char *>(name), size) : "";
}

PresentedCertificate TlsChannel::Presented() const {
	PresentedCertificate presented;
	presented.trusted_issuers = context->own.trusted_issuers;
	auto certificate = SSL_get0_peer_certificate(ssl.get());
	if (!certificate) {
		return presented;
	}
	presented.is_present = true;
	presented.facts = FactsOf(certificate);
	presented.chain_errors = *chain_errors;
	auto verdict = SSL_get_verify_result(ssl.get());
	if (presented.chain_errors.empty() && verdict != X509_V_OK) {
		presented.chain_errors.push_back(X509_verify_cert_error_string(verdict));
	}
	return presented;
}

} // namespace transport
} // namespace quack
