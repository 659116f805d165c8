//! The transport's view of this node: the fence at the door, then the way to the engine.
#pragma once

#include <functional>
#include <mutex>

#include "quack/node/member_directory.hpp"

namespace quack {
namespace node {

//! What the engine takes from the transport.
class PeerTraffic {
public:
	virtual ~PeerTraffic() = default;
	virtual void OnPeerMessage(const std::string &peer, std::string bytes) = 0;
	virtual void OnPeerCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	                        transport::Responder respond) = 0;
	virtual void OnPeerChanged(const std::string &peer, bool is_up) = 0;
};

//! Made before the transport, which it must outlive; the engine attaches itself. Until then messages are dropped and
//! calls answered Unavailable. Streams that are not HTTP/2 go to the node's own server through `on_stream`.
class PeerGateway final : public transport::TransportHandler {
public:
	using StreamHandler = std::function<void(std::shared_ptr<transport::ByteStream>)>;

	explicit PeerGateway(const RaftEngineConfig &config, StreamHandler on_stream = StreamHandler());

	void Attach(PeerTraffic &traffic);
	//! Returns when no callback of the attached one runs any more.
	void Detach();
	const wire::Hello &OwnHello() const {
		return hello;
	}

	std::string LocalHello() override;
	//! Refuses unknown names, a numeric id that is not the configured one, and what wire::CheckCompatible refuses.
	Status CheckHello(const std::string &peer, ByteView hello) override;
	void OnMessage(const std::string &peer, std::string bytes) override;
	void OnCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	            transport::Responder respond) override;
	void OnPeerUp(const std::string &peer) override;
	void OnPeerDown(const std::string &peer, const std::string &reason) override;
	void OnByteStream(std::shared_ptr<transport::ByteStream> stream) override;

private:
	MemberDirectory directory;
	wire::Hello hello;
	StreamHandler on_stream;
	std::mutex lock; //! guards traffic; held while its callbacks run (they only queue), so that Detach can wait
	PeerTraffic *traffic = nullptr;
};

} // namespace node
} // namespace quack
