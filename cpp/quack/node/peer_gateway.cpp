#include "quack/node/peer_gateway.hpp"

#include "quack/common/log.hpp"
#include "quack/wire/calls.hpp"

namespace quack {
namespace node {

PeerGateway::PeerGateway(const RaftEngineConfig &config, StreamHandler on_stream_p)
    : directory(std::make_shared<MemberDirectory>(config)), on_stream(std::move(on_stream_p)) {
	hello.cluster_id = config.cluster_id;
	hello.node_name = config.node_id;
	hello.duckdb_version = config.duckdb_version;
	hello.storage_version = config.storage_version;
	hello.entry_format_min = config.entry_format_min;
	hello.entry_format_max = config.entry_format_max;
	hello.capabilities = wire::CAPABILITY_SNAPSHOT_TRANSFER | wire::CAPABILITY_PROPOSAL_FORWARDING;
}

void PeerGateway::Attach(PeerTraffic &traffic_p) {
	{
		std::lock_guard<std::mutex> guard(lock);
		traffic = &traffic_p;
	}
	std::lock_guard<std::mutex> guard(learned_lock);
	learner = &traffic_p;
}

void PeerGateway::Detach() {
	{
		std::lock_guard<std::mutex> guard(lock);
		traffic = nullptr;
	}
	std::lock_guard<std::mutex> guard(learned_lock);
	learner = nullptr;
}

wire::Hello PeerGateway::OwnHello() const {
	auto result = hello;
	directory->FillHello(result);
	return result;
}

std::string PeerGateway::LocalHello() {
	return wire::EncodeHello(OwnHello());
}

Status PeerGateway::CheckHello(const std::string &peer, ByteView bytes) {
	auto decoded = wire::DecodeHello(bytes);
	if (!decoded.IsOk()) {
		return decoded.GetStatus();
	}
	auto &remote = decoded.Value();
	auto status = wire::CheckCompatible(hello, remote);
	if (status.IsOk() && remote.node_name != peer) {
		status =
		    Status(ErrorCode::Unauthorized, "the certificate names node '" + peer + "', its hello says '" +
			                                    remote.node_name + "': set node_id to the name in the certificate");
	}
	if (status.IsOk()) {
		status = directory->CheckPeer(remote, clock.Now());
	}
	std::lock_guard<std::mutex> guard(learned_lock);
	if (learner != nullptr) {
		learner->OnPeersLearned();
	}
	return status;
}

void PeerGateway::OnMessage(const std::string &peer, std::string bytes) {
	std::lock_guard<std::mutex> guard(lock);
	if (traffic != nullptr) {
		traffic->OnPeerMessage(peer, std::move(bytes));
	}
}

void PeerGateway::OnCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
                         transport::Responder respond) {
	if (method == wire::METHOD_HELLO) {
		auto status = CheckHello(peer, body);
		respond(status.IsOk() ? Result<std::string>(LocalHello()) : Result<std::string>(status));
		return;
	}
	std::unique_lock<std::mutex> guard(lock);
	if (traffic != nullptr) {
		traffic->OnPeerCall(peer, method, std::move(body), timeout, std::move(respond));
		return;
	}
	guard.unlock();
	respond(Status(ErrorCode::Unavailable, "node '" + hello.node_name + "' is starting or stopping; retry"));
}

void PeerGateway::OnPeerUp(const std::string &peer) {
	Log(LogLevel::Info, "node", "peer_up", {{"peer", peer}});
	std::lock_guard<std::mutex> guard(lock);
	if (traffic != nullptr) {
		traffic->OnPeerChanged(peer, true);
	}
}

void PeerGateway::OnPeerDown(const std::string &peer, const std::string &reason) {
	Log(LogLevel::Warn, "node", "peer_down", {{"peer", peer}, {"reason", reason}});
	std::lock_guard<std::mutex> guard(lock);
	if (traffic != nullptr) {
		traffic->OnPeerChanged(peer, false);
	}
}

void PeerGateway::OnByteStream(std::shared_ptr<transport::ByteStream> stream) {
	if (on_stream) {
		on_stream(std::move(stream));
	} else {
		stream->Close();
	}
}

} // namespace node
} // namespace quack
