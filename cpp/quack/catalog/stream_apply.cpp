#include "quack/catalog/stream_apply.hpp"

#include <algorithm>

#include "quack/catalog/change_tee.hpp"
#include "quack/catalog/meta_store.hpp"
#include "quack/common/crc32c.hpp"

namespace quack {
namespace catalog {
namespace {

//! The bytes of a stream, a fragment at a time; holds one table of them.
class FragmentSource {
public:
	FragmentSource(ApplySession &session_p, const OpenStream &open_p) : session(session_p), open(open_p) {
	}

	std::string Next() {
		while (position == fragments.size()) {
			if (next_table == open.tables) {
				return std::string();
			}
			fragments = ReadFragments(session, open, next_table++);
			position = 0;
		}
		auto bytes = std::move(fragments[position++]);
		count++;
		crc = Crc32c(bytes, crc);
		return bytes;
	}

	bool IsWhole() const {
		return next_table == open.tables && position == fragments.size() && count == open.count && crc == open.crc;
	}

private:
	ApplySession &session;
	const OpenStream &open;
	std::vector<std::string> fragments;
	size_t position = 0;
	uint32_t next_table = 0;
	uint32_t count = 0;
	uint32_t crc = 0;
};

bool ChangesRows(const DecodedEntry &entry) {
	return std::any_of(entry.effects.begin(), entry.effects.end(), [](const Effect &effect) {
		return effect.kind == EffectKind::DeleteRows || effect.kind == EffectKind::UpdateRows;
	});
}

} // namespace

void StreamApplier::ForEachFrame(const std::function<void(const DecodedEntry &)> &visit) {
	FragmentSource source(session, open);
	FrameReader frames([&source] { return source.Next(); });
	for (;;) {
		auto frame = frames.Next();
		if (!frame.IsOk()) {
			throw frame.GetStatus();
		}
		if (!frame.Value()) {
			break;
		}
		frame.Value()->header = end.header; // a frame has none of its own
		visit(*frame.Value());
	}
	if (!source.IsWhole()) {
		throw Status(ErrorCode::Corruption,
		             "the fragments of stream " + RequestIdToString(open.stream) + " in __quack fail their checksum");
	}
}

void StreamApplier::Locate() {
	if (!ChangesRows(end)) {
		return;
	}
	ForEachFrame(
	    [this](const DecodedEntry &frame) { EffectApplier(session, frame, nullptr, &locators).Locate(row_ids); });
	is_located = true;
}

void StreamApplier::Execute() {
	ForEachFrame([this](const DecodedEntry &frame) {
		EffectApplier effects(session, frame, changes, &locators);
		if (is_located) {
			effects.Execute(row_ids);
		} else {
			effects.Execute();
		}
		rows += effects.Rows();
		if (changes != nullptr) {
			changes->Flush(session); // the frame ends here
		}
	});
	EffectApplier sequences(session, end);
	sequences.ExecuteSequences();
	sequence_moves = sequences.TakeSequenceMoves();
}

} // namespace catalog
} // namespace quack
