#include "quack/transport/transport.hpp"

#include <list>
#include <map>
#include <set>
#include <shared_mutex>

#include "quack/common/log.hpp"
#include "quack/transport/dialer.hpp"
#include "quack/transport/event_loop.hpp"
#include "quack/transport/listener.hpp"

namespace quack {
namespace transport {

namespace {

constexpr auto CERTIFICATE_CHECK_INTERVAL = std::chrono::seconds(1);

class Http2Transport final : public Transport, public InboundOwner {
public:
	Http2Transport(const TransportConfig &config, TransportHandler &handler)
	    : core(config, handler), loop(core.io), listener(core, *this), certificate_timer(*core.io) {
		core.on_refused = [this](const std::string &claimed, const std::string &reason) {
			NoteRefusal(claimed, reason);
		};
	}
	~Http2Transport() override {
		Stop();
	}

	Status Start() override;
	void Stop() override;
	uint16_t ListenPort() const override {
		return listener.Port();
	}
	void SetPeers(const std::vector<PeerAddress> &peers) override;
	Status Send(const std::string &peer, std::string bytes) override {
		return SendOn(Lane::Bulk, peer, std::move(bytes));
	}
	Status SendUrgent(const std::string &peer, std::string bytes) override {
		return SendOn(Lane::Urgent, peer, std::move(bytes));
	}
	void Call(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	          Responder respond) override;
	std::vector<PeerStatus> GetPeers() const override;
	std::vector<InboundRefusal> GetRefusals() const override {
		return core.refusals.Get();
	}
	TransportStatus GetTransportStatus() const override;

	void OnInboundBegun(const std::shared_ptr<InboundSession> &session) override;
	void OnInboundUp(const std::shared_ptr<InboundSession> &session) override;
	void OnInboundGone(const std::shared_ptr<InboundSession> &session, const std::string &reason) override;
	std::shared_ptr<ReceiveCounters> CountersOf(const std::string &peer) override;

private:
	enum class State { New, Running, Stopped };

	Status SendOn(Lane lane, const std::string &peer, std::string bytes);
	std::shared_ptr<PeerLink> MakeLink(const PeerAddress &peer) {
		return std::make_shared<PeerLink>(core, peer, CountersLocked(peer.node_id));
	}
	std::shared_ptr<PeerLink> FindLink(const std::string &peer) const;
	Status CheckConfig() const;
	void CheckCertificates();
	void StopOnLoop();
	void NoteRefusal(const std::string &claimed, const std::string &reason);
	std::shared_ptr<ReceiveCounters> CountersLocked(const std::string &peer);

	TransportCore core;
	EventLoop loop;
	Listener listener;
	asio::steady_timer certificate_timer;
	//! Event loop only.
	std::set<std::shared_ptr<InboundSession>> inbound;
	std::list<std::shared_ptr<InboundSession>> unproven; //! before their hello, oldest first
	std::map<std::string, std::shared_ptr<InboundSession>> inbound_by_peer;
	bool is_stopping = false;

	//! Guards state and links. Held (shared) while posting to the loop, so that whatever is posted runs before the loop
	//! ends; never held while a handler or responder runs.
	mutable std::shared_mutex lock;
	State state = State::New;
	std::map<std::string, std::shared_ptr<PeerLink>> links;
	//! Of all peers ever seen: they outlive a removal from the set.
	std::map<std::string, std::shared_ptr<ReceiveCounters>> counters;
};

Status Http2Transport::CheckConfig() const {
	auto &config = core.config;
	if (config.node_id.empty()) {
		return Status(ErrorCode::InvalidArgument, "the transport needs a node_id, the name in the node's certificate");
	}
	if (config.message_bytes_max == 0 || config.message_bytes_max > UINT32_MAX || config.backoff_min <= 0 ||
	    config.backoff_max < config.backoff_min || config.dial_timeout <= 0 || config.idle_timeout <= 0 ||
	    config.handshake_timeout <= 0) {
		return Status(ErrorCode::InvalidArgument,
		              "transport limits of node '" + config.node_id +
		                  "' are out of range: timeouts and backoff_min above 0, backoff_max >= backoff_min, "
		                  "message_bytes_max within 1..4 GiB");
	}
	return Status::Ok();
}

Status Http2Transport::Start() {
	std::unique_lock<std::shared_mutex> guard(lock);
	if (state != State::New) {
		return Status(ErrorCode::InvalidArgument, "a transport is started once");
	}
	auto status = CheckConfig();
	if (status.IsOk() && !core.config.plaintext) {
		status = core.tls.Load(core.config.check_own_certificate);
	}
	if (status.IsOk()) {
		status = listener.Open();
	}
	if (!status.IsOk()) {
		return status;
	}
	state = State::Running;
	loop.Start();
	asio::post(*core.io, [this, started = links] {
		listener.Start();
		if (!core.config.plaintext) {
			CheckCertificates();
		}
		for (auto &entry : started) {
			entry.second->Start();
		}
	});
	Log(LogLevel::Info, "transport", "listening",
	    {{"node", core.config.node_id},
	     {"host", core.config.listen_host},
	     {"port", std::to_string(listener.Port())},
	     {"tls", core.config.plaintext ? "off" : "on"}});
	return Status::Ok();
}

void Http2Transport::Stop() {
	bool was_running = false;
	{
		std::unique_lock<std::shared_mutex> guard(lock);
		was_running = state == State::Running;
		state = State::Stopped;
		if (was_running) {
			asio::post(*core.io, [this] { StopOnLoop(); });
		}
	}
	if (was_running) {
		loop.Finish();
		listener.Streams().Stop();
	}
}

void Http2Transport::StopOnLoop() {
	is_stopping = true;
	certificate_timer.cancel();
	listener.Close();
	std::map<std::string, std::shared_ptr<PeerLink>> stopped;
	{
		std::shared_lock<std::shared_mutex> guard(lock);
		stopped = links;
	}
	for (auto &entry : stopped) {
		entry.second->Stop("the transport of this node stopped");
	}
	auto leaving = inbound;
	for (auto &session : leaving) {
		session->Break("the transport of this node stopped");
	}
}

void Http2Transport::CheckCertificates() {
	core.tls.Refresh(true);
	certificate_timer.expires_after(CERTIFICATE_CHECK_INTERVAL);
	certificate_timer.async_wait([this](const asio::error_code &error) {
		if (!error && !is_stopping) {
			CheckCertificates();
		}
	});
}

void Http2Transport::SetPeers(const std::vector<PeerAddress> &peers) {
	std::unique_lock<std::shared_mutex> guard(lock);
	if (state == State::Stopped) {
		return;
	}
	std::map<std::string, std::shared_ptr<PeerLink>> wanted;
	for (auto &peer : peers) {
		if (peer.node_id == core.config.node_id) {
			continue;
		}
		auto known = links.find(peer.node_id);
		auto link = known != links.end() ? known->second : MakeLink(peer);
		wanted[peer.node_id] = link;
		if (state == State::Running) {
			asio::post(*core.io, [link, peer] {
				link->SetAddress(peer);
				link->Start();
			});
		} else if (known != links.end()) {
			link = wanted[peer.node_id] = MakeLink(peer);
		}
	}
	for (auto &entry : links) {
		if (!wanted.count(entry.first) && state == State::Running) {
			asio::post(*core.io, [link = entry.second] { link->Stop("the peer was removed from the set of peers"); });
		}
	}
	links = std::move(wanted);
}

std::shared_ptr<PeerLink> Http2Transport::FindLink(const std::string &peer) const {
	auto entry = links.find(peer);
	return entry == links.end() ? nullptr : entry->second;
}

Status Http2Transport::SendOn(Lane lane, const std::string &peer, std::string bytes) {
	std::shared_lock<std::shared_mutex> guard(lock);
	auto link = FindLink(peer);
	if (!link || state != State::Running) {
		return Status(ErrorCode::Unavailable, "message to '" + peer + "' dropped: " +
		                                          (link ? "the transport is not running" : "not in the set of peers"));
	}
	return link->Send(lane, std::move(bytes));
}

void Http2Transport::Call(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
                          Responder respond) {
	auto reason = "the transport is not running";
	{
		std::shared_lock<std::shared_mutex> guard(lock);
		auto link = FindLink(peer);
		if (link && state == State::Running) {
			link->Call(method, std::move(body), timeout, std::move(respond));
			return;
		}
		if (state == State::Running) {
			asio::post(*core.io, [peer, respond] {
				respond(Status(ErrorCode::Unavailable, "'" + peer + "' is not in the set of peers"));
			});
			return;
		}
	}
	respond(Status(ErrorCode::Unavailable, "call to '" + peer + "' not sent: " + reason));
}

std::vector<PeerStatus> Http2Transport::GetPeers() const {
	std::shared_lock<std::shared_mutex> guard(lock);
	std::vector<PeerStatus> peers;
	for (auto &entry : links) {
		peers.push_back(entry.second->GetStatus());
	}
	return peers;
}

TransportStatus Http2Transport::GetTransportStatus() const {
	TransportStatus status;
	if (auto current = core.tls.Current()) {
		status.certificate = current->own.facts;
	}
	status.certificate_alarm = core.tls.Alarm();
	status.certificate_reloads = core.tls.ReloadCount();
	status.byte_streams = listener.Streams().Count();
	status.pending_handshakes = listener.PendingCount();
	status.refused_connections = core.refusals.Count();
	return status;
}

void Http2Transport::OnInboundBegun(const std::shared_ptr<InboundSession> &session) {
	inbound.insert(session);
	unproven.push_back(session);
	if (unproven.size() > core.config.handshakes_max) {
		auto oldest = unproven.front();
		oldest->Break("the oldest of too many sessions without a hello (handshakes_max) made room");
	}
}

void Http2Transport::OnInboundUp(const std::shared_ptr<InboundSession> &session) {
	unproven.remove(session);
	auto &slot = inbound_by_peer[session->Peer()];
	auto older = slot;
	slot = session;
	if (older) {
		older->Break("a newer session of '" + session->Peer() + "' took its place");
	}
	CountersOf(session->Peer())->is_inbound_up = true;
	std::shared_lock<std::shared_mutex> guard(lock);
	if (auto link = FindLink(session->Peer())) {
		asio::post(*core.io, [link] { link->DialSoon(); });
	}
}

void Http2Transport::OnInboundGone(const std::shared_ptr<InboundSession> &session, const std::string &reason) {
	inbound.erase(session);
	unproven.remove(session);
	auto slot = inbound_by_peer.find(session->Peer());
	if (slot == inbound_by_peer.end() || slot->second != session) {
		return;
	}
	inbound_by_peer.erase(slot);
	CountersOf(session->Peer())->is_inbound_up = false;
	Log(LogLevel::Info, "transport", "inbound_session_ended",
	    {{"node", core.config.node_id}, {"peer", session->Peer()}, {"reason", reason}});
}

std::shared_ptr<ReceiveCounters> Http2Transport::CountersLocked(const std::string &peer) {
	auto &entry = counters[peer];
	if (!entry) {
		entry = std::make_shared<ReceiveCounters>();
	}
	return entry;
}

std::shared_ptr<ReceiveCounters> Http2Transport::CountersOf(const std::string &peer) {
	std::unique_lock<std::shared_mutex> guard(lock);
	return CountersLocked(peer);
}

void Http2Transport::NoteRefusal(const std::string &claimed, const std::string &reason) {
	std::shared_lock<std::shared_mutex> guard(lock);
	if (auto link = FindLink(claimed)) {
		link->NoteInboundRefusal(reason);
	}
}

} // namespace

std::unique_ptr<Transport> MakeHttp2Transport(const TransportConfig &config, TransportHandler &handler) {
	return std::make_unique<Http2Transport>(config, handler);
}

} // namespace transport
} // namespace quack
