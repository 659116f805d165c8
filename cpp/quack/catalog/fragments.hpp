//! A transaction that is too large for one log entry: the rules, without DuckDB. DESIGN.md, "Large transactions".
//!
//! Its effects are a *stream* of frames (effects.hpp); fragments are the stream cut into pieces of bounded size, each
//! in a log entry of its own, in order, among the entries of others. They change nothing that anybody can see. The
//! entry that ends the stream is the commit: it names count, size and checksum of what must have come before, and
//! carries the request id's outcome like any other entry. A fragment belongs to a group of the log and to a *stream
//! id*, which is drawn anew for each attempt of a request.
#pragma once

#include <array>
#include <string>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace catalog {

//! Random; made and printed as request ids are.
using StreamId = std::array<uint8_t, 16>;

struct Fragment {
	StreamId stream {};
	uint32_t sequence = 0; //! from 0
	ByteView bytes;        //! a view into what was decoded
};

struct FragmentsEnd {
	StreamId stream {};
	uint32_t count = 0;
	uint64_t bytes = 0;
	uint32_t crc = 0; //! CRC32C of all bytes
	//! Of the frames before compression: what a node needs space for, about.
	uint64_t plain_bytes = 0;
};

std::string EncodeFragment(const Fragment &fragment);
std::string EncodeFragmentsEnd(const FragmentsEnd &end);
std::string EncodeStreamId(const StreamId &id);
//! Corruption.
Result<Fragment> DecodeFragment(ByteView content);
Result<FragmentsEnd> DecodeFragmentsEnd(ByteView content);
Result<StreamId> DecodeStreamId(ByteView content);

//! Where the bytes of a stream are kept until it ends: tables of about FRAGMENT_TABLE_BYTES, numbered from 0.
constexpr uint64_t FRAGMENT_TABLE_BYTES = 16 * 1024 * 1024;

//! What a node holds of a stream that has not ended. Replicated state: alike on all nodes after the same entry.
struct OpenStream {
	raft::GroupId group = raft::ROOT_GROUP;
	StreamId stream {};
	std::array<uint8_t, 16> request_id {};
	raft::LogIndex first_index = 0;
	raft::LogIndex last_index = 0;
	uint32_t count = 0; //! fragments taken, so the number of the next one
	uint64_t bytes = 0;
	uint32_t crc = 0;
	uint32_t tables = 0;
	uint64_t last_table_bytes = 0;

	//! True when the fragment is the next one; it has been counted then and lies in table `tables - 1`. Else it changes
	//! nothing: it came before, or others before it are missing, and then the stream can never end well.
	bool Take(const Fragment &fragment, raft::LogIndex index);
	//! Conflict (retry) unless exactly what `end` names was taken.
	Status Check(const FragmentsEnd &end) const;
};

//! What Check says when nothing is held of the stream.
Status StreamIsGone();

std::string EncodeOpenStream(const OpenStream &open);
//! Corruption.
Result<OpenStream> DecodeOpenStream(ByteView value);

} // namespace catalog
} // namespace quack
