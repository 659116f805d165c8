//! Images of the catalog file, as they are sent to peers: `<catalog file>.snapshot.<id>`, and beside one that is to
//! outlive the process `<catalog file>.snapshot.<id>.kept`, a record of what it is. Nothing here knows DuckDB.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quack/node/state_machine.hpp"

namespace quack {
namespace catalog {

//! What an image is of.
struct ImageOrigin {
	std::string catalog_path;
	std::string cluster_id;
};

//! Copies the first `bytes` of a file, which must not change meanwhile. The copy goes with the object unless retained.
Result<std::unique_ptr<node::StateMachine::SnapshotImage>>
CopyToImage(const ImageOrigin &origin, int from, uint64_t bytes, std::vector<node::AppliedPosition> positions);

//! Images that an earlier process retained, less those that are older than a day or from before the machine's last
//! start: they were never synced. All others are removed.
std::vector<std::unique_ptr<node::StateMachine::SnapshotImage>> FindRetainedImages(const ImageOrigin &origin);

} // namespace catalog
} // namespace quack
