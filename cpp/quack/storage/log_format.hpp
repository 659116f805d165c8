//! Bytes of the log: segment header, record header and record bodies. Little-endian, every offset a multiple of 8.
//! segmented_log.hpp tells how they are used and what recovery concludes from them. Pure: no IO.
#pragma once

#include <string>
#include <vector>

#include "quack/common/bytes.hpp"
#include "quack/common/status.hpp"
#include "quack/raft/types.hpp"

namespace quack {
namespace storage {

//! Goes up with every change an older reader cannot understand; never down.
constexpr uint32_t LOG_FORMAT_VERSION = 1;
constexpr uint64_t SEGMENT_HEADER_BYTES = 64;
constexpr uint64_t RECORD_HEADER_BYTES = 56;
constexpr uint64_t RECORD_ALIGNMENT = 8;
constexpr uint32_t RECORD_MAGIC = 0x4b435551; // "QUCK"
//! Largest encoded batch. Keeps every offset of a segment far below the 32 GiB that a u32 of 8-byte units can name.
constexpr uint64_t BATCH_BYTES_MAX = 1ULL << 30;
constexpr uint64_t SEGMENT_BYTES_MAX = 2ULL << 30;

//! First bytes of a segment file:
//!   0 magic "QUACKLOG"   8 version u32   12 crc u32 (of the other 60 bytes)   16 store id u64   24 sequence u64
//!   32 capacity u64   40 head end u64   48 previous end u64   56 previous crc u32   60 nonce u32
struct SegmentHeader {
	//! Drawn when the log directory was made; ties segments together.
	uint64_t store_id = 0;
	//! 1, 2, 3 … without gaps.
	uint64_t sequence = 0;
	//! Preallocated size of the file.
	uint64_t capacity = 0;
	//! End of the state records that open the segment; durable before the segment got its name.
	uint64_t head_end = 0;
	//! Where the records of segment `sequence - 1` end and the checksum of its last one; 0 in the first segment.
	uint64_t previous_end = 0;
	uint32_t previous_crc = 0;
	//! Random: a crash may undo the naming of a segment, and the same file may then be given the same number again.
	uint32_t nonce = 0;
	//! Checksum of this header; its first record is chained to it, and every record's checksum is seeded by it.
	uint32_t crc = 0;
	//! Not on disk. As LogSabotage::skip_checksum.
	bool skips_checksum = false;
};

//! Sets header.crc.
std::string EncodeSegmentHeader(SegmentHeader &header);
//! Corruption, or Incompatible for another version. The message says what is wrong, not which file.
Result<SegmentHeader> DecodeSegmentHeader(ByteView bytes);

enum class RecordType : uint8_t {
	GroupState = 1,     //! head of a segment: everything about one group but its entries; index = last index
	CreateGroup = 2,    //! (term, index) = snapshot position; body = membership
	HardState = 3,      //! term, index = commit index; body = voted_for
	Entry = 4,          //! term, index, entry_type; body = payload
	TruncatePrefix = 5, //! (term, index) = snapshot position; body = membership
	Reset = 6,          //! (term, index) = snapshot position; body = membership
	RemoveGroup = 7,
	End = 8, //! nothing after this yet; overwritten by the next batch
};

//! Stable lower-case name, "unknown" for a number that is none.
const char *RecordTypeName(RecordType type);

struct RecordFields {
	RecordType type = RecordType::End;
	uint8_t entry_type = 0;
	raft::GroupId group = 0;
	raft::Term term = 0;
	raft::LogIndex index = 0;
};

//! A record about to be written. The body outlives the write.
struct PendingRecord {
	RecordFields fields;
	ByteView body;
	//! What the cache keeps; null for all but entries.
	const raft::Entry *entry = nullptr;
};

//! A record found in a segment:
//!   0 magic u32   4 crc u32 (seeded by the header's; bytes 8 to the end of the body)   8 previous record's crc u32
//!   12 body size u32   16 segment sequence u32 (low half)   20 synced u32 (8-byte units)   24 type u8   25 entry type
//!   u8 26 zero u16   28 own offset u32 (8-byte units)   32 group u64   40 term u64   48 index u64   56 body, zero
//!   padding
struct RecordView {
	RecordFields fields;
	uint64_t offset = 0;
	//! Up to here the segment was durable when this record was written.
	uint64_t synced = 0;
	uint32_t crc = 0;
	uint32_t previous_crc = 0;
	ByteView body;

	uint64_t End() const;
};

//! Header, body and padding.
uint64_t RecordBytes(uint64_t body_size);

//! Checks magic, place (segment and offset), size and checksum, not the chain. False when any fails.
bool ParseRecord(ByteView segment, uint64_t offset, const SegmentHeader &header, RecordView &record);
//! Same for a piece of a segment: the record lies at `at` in `bytes` and at `offset` in the segment.
bool ParseRecordAt(ByteView bytes, uint64_t at, const SegmentHeader &header, uint64_t offset, RecordView &record);

//! What a damaged record claims to be, for messages; false when neither its magic nor its own offset is
//! there.
bool PeekRecord(ByteView segment, uint64_t offset, RecordFields &fields, uint64_t &body_size);

//! Test-only switches that break a rule on purpose, so that the checkers can be shown to notice. All false in
//! production; each must make the simulator fail.
struct LogSabotage {
	bool skip_checksum = false; //! takes every record for good that has its magic, its place and its predecessor
};

//! Lays out consecutive records for one write. Bodies of 4 KiB and more are referred to, not copied.
class BatchEncoder {
public:
	//! First record at `offset`, chained to `previous_crc`; `synced` goes into every record.
	BatchEncoder(const SegmentHeader &segment, uint64_t offset, uint64_t synced, uint32_t previous_crc);

	//! Returns the record's offset.
	uint64_t Add(const PendingRecord &record);
	//! Adds the End record; nothing may follow it. It moves neither EndOffset nor LastCrc.
	void AddEnd();

	uint64_t EndOffset() const {
		return end_offset;
	}
	uint32_t LastCrc() const {
		return last_crc;
	}
	//! Valid while the encoder and the bodies live.
	std::vector<ByteView> Pieces() const;

private:
	struct Piece {
		size_t begin = 0; //! in `arena`
		size_t size = 0;
		ByteView external; //! used when size is 0
	};
	uint32_t Encode(const PendingRecord &record, uint64_t offset);

	const uint32_t seed;
	const uint32_t segment_low;
	const uint64_t synced;
	uint64_t end_offset;
	uint32_t last_crc;
	std::string arena;
	std::vector<Piece> pieces;
};

//! Everything about a group but its entries, as GroupState records carry it.
struct GroupHead {
	raft::HardState hard_state;
	raft::SnapshotMeta snapshot;
	raft::LogIndex last_index = 0;
};

std::string EncodeGroupHead(const GroupHead &head);
Result<GroupHead> DecodeGroupHead(ByteView body);
std::string EncodeMembership(const raft::Membership &membership);
Result<raft::Membership> DecodeMembership(ByteView body);
std::string EncodeVote(raft::NodeId voted_for);
Result<raft::NodeId> DecodeVote(ByteView body);

} // namespace storage
} // namespace quack
