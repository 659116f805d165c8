//! The transport's view of this node: the fence at the door, then the way to the engine.
#pragma once

#include <functional>
#include <memory>
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
	//! The directory may know more than before.
	virtual void OnPeersLearned() = 0;
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
	//! What this node says of itself now.
	wire::Hello OwnHello() const;
	const std::shared_ptr<MemberDirectory> &Directory() const {
		return directory;
	}

	std::string LocalHello() override;
	//! Refuses what wire::CheckCompatible and MemberDirectory::CheckPeer refuse.
	Status CheckHello(const std::string &peer, ByteView hello) override;
	void OnMessage(const std::string &peer, std::string bytes) override;
	void OnCall(const std::string &peer, const std::string &method, std::string body, MonotonicNs timeout,
	            transport::Responder respond) override;
	void OnPeerUp(const std::string &peer) override;
	void OnPeerDown(const std::string &peer, const std::string &reason) override;
	void OnByteStream(std::shared_ptr<transport::ByteStream> stream) override;

private:
	const std::shared_ptr<MemberDirectory> directory; //! shared with the engine
	wire::Hello hello;                                //! what never changes of it
	SystemClock clock;                                //! only for ages shown to operators
	StreamHandler on_stream;
	std::mutex lock; //! guards traffic; held while its callbacks run (they only queue), so that Detach can wait
	PeerTraffic *traffic = nullptr;
	//! The same for OnPeersLearned alone: hellos are checked where calls are answered from, perhaps under a lock there.
	std::mutex learned_lock;
	PeerTraffic *learner = nullptr;
};

} // namespace node
} // namespace quack
