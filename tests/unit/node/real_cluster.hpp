//! Engines over the real HTTP/2 transport (plain text on loopback) and the real segmented log in temporary folders.
#pragma once

#include "quack/storage/segmented_log.hpp"
#include "unit/node/test_cluster.hpp"

namespace quack {
namespace test {

//! A port of loopback that nobody listens on right now.
uint16_t FreePort();

class RealCluster : public TestCluster {
public:
	explicit RealCluster(size_t count, const Adjust &adjust = Adjust());
	~RealCluster() override;

protected:
	std::unique_ptr<storage::LogStore> OpenLog(TestNode &node) override;
	std::unique_ptr<transport::Transport> MakeTransport(TestNode &node) override;

private:
	storage::PosixFileSystem files;
};

} // namespace test
} // namespace quack
