#include "quack/transport/tls_context.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <sys/stat.h>
#include <vector>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "quack/common/log.hpp"
#include "quack/transport/tls_channel.hpp"

namespace quack {
namespace transport {

namespace {

struct PemSet {
	std::vector<X509Ptr> chain; //! leaf first
	std::vector<X509Ptr> roots;
	KeyPtr key;
};

//! Encrypted keys are refused instead of asking on a terminal.
int NoPassword(char *, int, int, void *) {
	return -1;
}

BioPtr MemoryBio(const std::string &bytes) {
	return BioPtr(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

Result<std::string> ReadTlsFile(const std::string &path, const char *what) {
	if (path.empty()) {
		return Status(ErrorCode::Unauthorized, std::string("no ") + what +
		                                           " is configured; peers need tls.cert_file, tls.key_file and "
		                                           "tls.ca_file");
	}
	auto bytes = ReadSmallFile(path, what);
	if (!bytes.IsOk()) {
		return Status(ErrorCode::Unauthorized, bytes.GetStatus().Message());
	}
	return bytes;
}

Result<std::vector<X509Ptr>> ParseCertificates(const std::string &path, const char *what) {
	auto bytes = ReadTlsFile(path, what);
	if (!bytes.IsOk()) {
		return bytes.GetStatus();
	}
	auto bio = MemoryBio(bytes.Value());
	std::vector<X509Ptr> certificates;
	ERR_clear_error();
	while (auto certificate = PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
		certificates.emplace_back(certificate);
	}
	// The regular end of a PEM file is "no start line"; everything else is a half-written or damaged block.
	auto error = ERR_peek_last_error();
	auto is_whole = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
	auto detail = TakeOpenSslErrors();
	if (certificates.empty() || !is_whole) {
		return Status(ErrorCode::Unauthorized,
		              std::string(what) + " '" + path + "' is " +
		                  (certificates.empty()
		                       ? "no PEM certificate"
							   : "damaged after " + std::to_string(certificates.size()) + " certificates") +
		                  ": " + detail + "; the file may be half-written, write it anew");
	}
	return certificates;
}

Result<KeyPtr> ParseKey(const std::string &path) {
	auto bytes = ReadTlsFile(path, "private key file");
	if (!bytes.IsOk()) {
		return bytes.GetStatus();
	}
	auto bio = MemoryBio(bytes.Value());
	ERR_clear_error();
	auto key = KeyPtr(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
	OPENSSL_cleanse(&bytes.Value()[0], bytes.Value().size());
	if (!key) {
		auto detail = TakeOpenSslErrors();
		return Status(ErrorCode::Unauthorized, "private key file '" + path + "' holds no readable PEM private key: " +
		                                           detail + "; it must be unencrypted and complete");
	}
	return key;
}

Result<PemSet> ParseFiles(const TlsFiles &files) {
	PemSet set;
	auto chain = ParseCertificates(files.cert_file, "certificate file");
	if (!chain.IsOk()) {
		return chain.GetStatus();
	}
	auto roots = ParseCertificates(files.ca_file, "CA file");
	if (!roots.IsOk()) {
		return roots.GetStatus();
	}
	auto key = ParseKey(files.key_file);
	if (!key.IsOk()) {
		return key.GetStatus();
	}
	set.chain = std::move(chain.Value());
	set.roots = std::move(roots.Value());
	set.key = std::move(key.Value());
	if (X509_check_private_key(set.chain[0].get(), set.key.get()) != 1) {
		ERR_clear_error();
		return Status(ErrorCode::Unauthorized, "private key '" + files.key_file + "' does not belong to certificate '" +
		                                           files.cert_file + "' (" +
		                                           DescribeCertificate(FactsOf(set.chain[0].get())) +
		                                           "); install the key that was issued with it");
	}
	return set;
}

//! HTTP/1.1 wins when offered, so that general clients which offer both are served; peers offer h2 alone.
int SelectAlpn(SSL *, const unsigned char **out, unsigned char *out_size, const unsigned char *in, unsigned int in_size,
               void *) {
	for (auto wanted : {ByteView("http/1.1"), ByteView("h2")}) {
		for (unsigned int at = 0; at < in_size && at + 1 + in[at] <= in_size; at += 1 + in[at]) {
			if (ByteView(reinterpret_cast<const char *>(in + at + 1), in[at]) == wanted) {
				*out = in + at + 1;
				*out_size = in[at];
				return SSL_TLSEXT_ERR_OK;
			}
		}
	}
	return SSL_TLSEXT_ERR_NOACK;
}

bool FillContext(SSL_CTX *context, const PemSet &set, bool is_server) {
	auto is_ok = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1;
	is_ok = is_ok && SSL_CTX_use_certificate(context, set.chain[0].get()) == 1;
	for (size_t i = 1; is_ok && i < set.chain.size(); i++) {
		is_ok = SSL_CTX_add1_chain_cert(context, set.chain[i].get()) == 1;
	}
	is_ok = is_ok && SSL_CTX_use_PrivateKey(context, set.key.get()) == 1;
	auto store = SSL_CTX_get_cert_store(context);
	for (auto &root : set.roots) {
		is_ok = is_ok && X509_STORE_add_cert(store, root.get()) == 1;
		if (is_server) {
			is_ok = is_ok && SSL_CTX_add_client_CA(context, root.get()) == 1;
		}
	}
	// An intermediate in the bundle is an anchor too.
	X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
	// No resumption: every session checks the certificate afresh, also after a reload.
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
	if (is_server) {
		SSL_CTX_set_num_tickets(context, 0);
		SSL_CTX_set_alpn_select_cb(context, SelectAlpn, nullptr);
	} else {
		static const unsigned char alpn[] = {2, 'h', '2'};
		is_ok = is_ok && SSL_CTX_set_alpn_protos(context, alpn, sizeof(alpn)) == 0;
	}
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, RecordChainErrors);
	return is_ok;
}

std::string Subjects(const std::vector<X509Ptr> &roots) {
	std::string text;
	for (size_t i = 0; i < roots.size() && i < 8; i++) {
		text += (text.empty() ? "'" : ", '") + FactsOf(roots[i].get()).subject + "'";
	}
	return text;
}

int CollectErrors(int is_ok, X509_STORE_CTX *store) {
	if (!is_ok) {
		auto errors = static_cast<std::vector<std::string> *>(X509_STORE_CTX_get_app_data(store));
		AddChainError(*errors, X509_STORE_CTX_get_error(store), X509_STORE_CTX_get_error_depth(store));
	}
	return 1;
}

//! Checks the own chain as peers on both sides will.
std::vector<std::string> OwnChainErrors(SSL_CTX *context, const PemSet &set) {
	std::vector<std::string> errors;
	auto rest = sk_X509_new_null();
	for (size_t i = 1; i < set.chain.size(); i++) {
		sk_X509_push(rest, set.chain[i].get());
	}
	for (auto purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
		auto store = StoreCtxPtr(X509_STORE_CTX_new());
		if (!store || !X509_STORE_CTX_init(store.get(), SSL_CTX_get_cert_store(context), set.chain[0].get(), rest)) {
			errors.push_back("cannot check: " + TakeOpenSslErrors());
			break;
		}
		X509_STORE_CTX_set_app_data(store.get(), &errors);
		X509_STORE_CTX_set_verify_cb(store.get(), CollectErrors);
		X509_STORE_CTX_set_purpose(store.get(), purpose);
		if (X509_verify_cert(store.get()) != 1 && errors.empty()) {
			errors.push_back(X509_verify_cert_error_string(X509_STORE_CTX_get_error(store.get())));
		}
	}
	sk_X509_free(rest);
	ERR_clear_error();
	return errors;
}

bool IsDateError(const std::string &error) {
	return error.find("expired") != std::string::npos || error.find("not yet valid") != std::string::npos;
}

} // namespace

Result<std::shared_ptr<const TlsContext>> LoadTlsContext(const TlsFiles &files) {
	auto parsed = ParseFiles(files);
	if (!parsed.IsOk()) {
		return parsed.GetStatus();
	}
	auto &set = parsed.Value();
	auto context = std::make_shared<TlsContext>();
	context->server.reset(SSL_CTX_new(TLS_server_method()));
	context->client.reset(SSL_CTX_new(TLS_client_method()));
	if (!context->server || !context->client || !FillContext(context->server.get(), set, true) ||
	    !FillContext(context->client.get(), set, false)) {
		return Status(ErrorCode::Unauthorized, "OpenSSL refuses certificate '" + files.cert_file + "' with key '" +
		                                           files.key_file + "' and CA '" + files.ca_file +
		                                           "': " + TakeOpenSslErrors());
	}
	context->own.is_present = true;
	context->own.facts = FactsOf(set.chain[0].get());
	context->own.chain_errors = OwnChainErrors(context->server.get(), set);
	context->own.trusted_issuers = Subjects(set.roots);
	return std::shared_ptr<const TlsContext>(context);
}

Result<CertificateFacts> CheckTlsFiles(const TlsFiles &files, const std::string &node_id) {
	auto loaded = LoadTlsContext(files);
	if (!loaded.IsOk()) {
		return loaded.GetStatus();
	}
	auto status = CheckPeerIdentity(loaded.Value()->own, node_id);
	if (!status.IsOk()) {
		return status;
	}
	return loaded.Value()->own.facts;
}

TlsContextStore::TlsContextStore(TlsFiles files_p, std::string node_id_p)
    : files(std::move(files_p)), node_id(std::move(node_id_p)) {
}

Status TlsContextStore::Load(bool is_strict) {
	tried_stamp = Stamp();
	tried_digest = ContentDigest();
	auto loaded = LoadTlsContext(files);
	if (!loaded.IsOk()) {
		return loaded.GetStatus();
	}
	auto &context = loaded.Value();
	auto full = CheckPeerIdentity(context->own, node_id);
	auto dateless = context->own;
	auto &errors = dateless.chain_errors;
	errors.erase(std::remove_if(errors.begin(), errors.end(), IsDateError), errors.end());
	auto lasting = CheckPeerIdentity(dateless, node_id);
	if (is_strict && !lasting.IsOk()) {
		return Status(ErrorCode::Unauthorized, "own certificate '" + files.cert_file + "': " + lasting.Message());
	}
	Adopt(context);
	if (!full.IsOk()) {
		RaiseAlarm("own certificate '" + files.cert_file + "': " + full.Message());
	}
	return Status::Ok();
}

void TlsContextStore::Refresh(bool with_content) {
	auto stamp = Stamp();
	auto digest = with_content || stamp != tried_stamp ? ContentDigest() : tried_digest;
	tried_stamp = stamp;
	if (digest == tried_digest) {
		return;
	}
	tried_digest = digest;
	auto loaded = LoadTlsContext(files);
	auto status = loaded.IsOk() ? CheckPeerIdentity(loaded.Value()->own, node_id) : loaded.GetStatus();
	if (!status.IsOk()) {
		RaiseAlarm("changed certificate files are not used, the old identity stays: " + status.Message());
		return;
	}
	auto facts = loaded.Value()->own.facts;
	Adopt(loaded.Value());
	Log(LogLevel::Info, "transport", "certificate_reloaded",
	    {{"cert_file", files.cert_file}, {"certificate", DescribeCertificate(facts)}});
}

std::shared_ptr<const TlsContext> TlsContextStore::Current() const {
	std::lock_guard<std::mutex> guard(lock);
	return current;
}

std::string TlsContextStore::Alarm() const {
	std::lock_guard<std::mutex> guard(lock);
	if (alarm.empty() && current && current->own.facts.not_after_unix < static_cast<int64_t>(std::time(nullptr))) {
		return "own certificate '" + files.cert_file + "' expired at " + current->own.facts.not_after +
		       "; install a new one, it is taken without a restart";
	}
	return alarm;
}

uint64_t TlsContextStore::ReloadCount() const {
	std::lock_guard<std::mutex> guard(lock);
	return reload_count;
}

std::string TlsContextStore::Stamp() const {
	std::string stamp;
	for (auto path : {&files.cert_file, &files.key_file, &files.ca_file}) {
		struct stat info {};
		if (stat(path->c_str(), &info) != 0) {
			stamp += "missing;";
			continue;
		}
		stamp += std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) + ":" + std::to_string(info.st_size) +
		         ":" + std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec) + ";";
	}
	return stamp;
}

std::string TlsContextStore::ContentDigest() const {
	std::string digests;
	for (auto path : {&files.cert_file, &files.key_file, &files.ca_file}) {
		auto bytes = ReadSmallFile(*path, "TLS file");
		unsigned char digest[EVP_MAX_MD_SIZE];
		unsigned int size = 0;
		if (bytes.IsOk() && !bytes.Value().empty()) {
			EVP_Digest(bytes.Value().data(), bytes.Value().size(), digest, &size, EVP_sha256(), nullptr);
			OPENSSL_cleanse(&bytes.Value()[0], bytes.Value().size());
		}
		digests.append(reinterpret_cast<char *>(digest), size);
		digests.push_back(';');
	}
	return digests;
}

void TlsContextStore::Adopt(std::shared_ptr<const TlsContext> context) {
	std::lock_guard<std::mutex> guard(lock);
	reload_count += current ? 1 : 0;
	current = std::move(context);
	alarm.clear();
}

void TlsContextStore::RaiseAlarm(const std::string &text) {
	Log(LogLevel::Error, "transport", "certificate_alarm", {{"node", node_id}, {"reason", text}});
	std::lock_guard<std::mutex> guard(lock);
	alarm = text;
}

} // namespace transport
} // namespace quack
