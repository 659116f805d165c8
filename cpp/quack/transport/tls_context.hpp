//! One loaded TLS identity (immutable) and its reload when the files change. Sessions keep the identity they were made
//! with; a new one serves new handshakes only.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "quack/transport/openssl_handle.hpp"
#include "quack/transport/peer_identity.hpp"
#include "quack/transport/transport.hpp"

namespace quack {
namespace transport {

//! Immutable after LoadTlsContext; shared by all handshakes, any thread. The chain check never aborts a handshake: its
//! errors are recorded per connection (TlsChannel), so that the refusal can be told in words.
struct TlsContext {
	SslCtxPtr server;
	SslCtxPtr client;
	PresentedCertificate own; //! chain_errors: of the own chain against the own CA bundle, dates included
};

//! Reads and checks all three files: PEM, key matches certificate. Unauthorized with words that never hold key bytes.
Result<std::shared_ptr<const TlsContext>> LoadTlsContext(const TlsFiles &files);

//! Holds the identity in use. Refresh runs on the event loop only; the getters on any thread.
class TlsContextStore {
public:
	TlsContextStore(TlsFiles files_p, std::string node_id_p);

	//! First load. With `is_strict` an own certificate that no peer would accept is Unauthorized, except for its dates:
	//! an expired one only raises the alarm, since a reload can mend it.
	Status Load(bool is_strict);
	//! Reloads when a file changed: by mtime, size and inode (follows symbolic links), and by content when
	//! `with_content`. A bad new set keeps the old identity and raises the alarm until a good one comes.
	void Refresh(bool with_content);

	std::shared_ptr<const TlsContext> Current() const;
	//! Empty when all is well.
	std::string Alarm() const;
	uint64_t ReloadCount() const;

private:
	std::string Stamp() const;
	std::string ContentDigest() const;
	void Adopt(std::shared_ptr<const TlsContext> context);
	void RaiseAlarm(const std::string &text);

	const TlsFiles files;
	const std::string node_id;
	//! Of the last set that was tried, good or bad. Event loop only.
	std::string tried_stamp;
	std::string tried_digest;

	mutable std::mutex lock; //! guards the fields below; never held across IO or OpenSSL calls
	std::shared_ptr<const TlsContext> current;
	std::string alarm;
	uint64_t reload_count = 0;
};

} // namespace transport
} // namespace quack
