//! Owning pointers for OpenSSL objects and its per-thread error queue as text. Internal to the layer.
#pragma once

#include <memory>
#include <string>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace quack {
namespace transport {

template <class T, void (*FREE)(T *)>
struct OpenSslDeleter {
	void operator()(T *object) const {
		FREE(object);
	}
};

using BioPtr = std::unique_ptr<BIO, OpenSslDeleter<BIO, BIO_free_all>>;
using X509Ptr = std::unique_ptr<X509, OpenSslDeleter<X509, X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpenSslDeleter<EVP_PKEY, EVP_PKEY_free>>;
using SslPtr = std::unique_ptr<SSL, OpenSslDeleter<SSL, SSL_free>>;
using SslCtxPtr = std::unique_ptr<SSL_CTX, OpenSslDeleter<SSL_CTX, SSL_CTX_free>>;
using StoreCtxPtr = std::unique_ptr<X509_STORE_CTX, OpenSslDeleter<X509_STORE_CTX, X509_STORE_CTX_free>>;

//! Empties this thread's error queue and returns its reasons, oldest first; "no detail" when empty.
inline std::string TakeOpenSslErrors() {
	std::string text;
	while (auto error = ERR_get_error()) {
		auto reason = ERR_reason_error_string(error);
		text += (text.empty() ? "" : ", ") + std::string(reason ? reason : "unknown");
	}
	return text.empty() ? "no detail" : text;
}

} // namespace transport
} // namespace quack
