//! Keeps what the applier applies: every batch of rows goes into the change feed's tables in the DuckDB transaction
//! that applies it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "quack/catalog/apply_session.hpp"
#include "quack/catalog/change_feed.hpp"
#include "quack/catalog/meta_store.hpp"
#include "quack/node/state_machine.hpp"

namespace quack {
namespace catalog {

//! Of one DuckDB transaction of the applier. Apply thread only. Throws what DuckDB throws.
class ChangeTee {
public:
	//! `known`: the feed before the transaction; outlives this.
	explicit ChangeTee(const ChangeFeed &known_p)
	    : known(known_p), retention(known_p.retention), since(known_p.since), sequence(known_p.sequence) {
	}

	//! Null when the changes of this entry are not kept. Else what follows belongs to it.
	ChangeTee *Begin(const node::CommittedEntry &committed, const EntryHeader &header);
	//! Makes the table that the entry's changes go to, so that Flush makes none until the next entry.
	void OpenSegment(ApplySession &session);
	//! Was executed just now. The bytes that it views outlive the next Flush.
	void AddRows(ApplySession &session, const Effect &effect);
	void AddDdl(ApplySession &session, const Effect &effect);
	void Flush(ApplySession &session);
	//! The entry changed rows and is not kept.
	void Skip(const node::CommittedEntry &committed);
	//! 0 = off. `last_changes`: per group, what was changed before it was on.
	void SetRetention(uint64_t bytes, raft::LogIndex index, const AppliedVector &last_changes);
	//! After the last entry: flushes, drops what is more than the retention, and tells the rows of `__quack.state`.
	void Finish(ApplySession &session, std::vector<StateRow> &rows);
	//! Once, when the transaction is committed: makes `feed`, which is what the constructor got, the feed after it.
	void Publish(ChangeFeed &feed);

private:
	struct Batch {
		std::string table; //! name of the segment's table
		raft::LogIndex index = 0;
		uint64_t sequence = 0;
		uint32_t ordinal = 0;
		ChangeKind kind = ChangeKind::Definition;
		std::string table_id;
		std::string definition;
		uint64_t row_count = 0;
		uint64_t bytes = 0;
		RequestId request {};
		std::string updated;
		ByteView old_rows;
		ByteView new_rows;
		std::string encoded; //! Definition: in place of new_rows
	};

	//! To be changed.
	ChangeGroup &Group(raft::GroupId id);
	std::string TableId(const std::string &key) const;
	void Forget();
	ChangeSegment &Segment();
	const std::string &DefinitionHash(ApplySession &session, const ObjectName &table);
	void Prune();
	void DropTables(ApplySession &session);

	const ChangeFeed &known;
	uint64_t retention;
	raft::LogIndex since;
	uint64_t sequence;
	//! What the transaction changes of `known`; a table without a value is forgotten.
	std::map<raft::GroupId, ChangeGroup> groups;
	std::map<std::string, std::optional<std::string>> tables;
	bool is_off = false; //! all groups and tables are forgotten

	raft::GroupId group = raft::ROOT_GROUP;
	raft::LogIndex index = 0;
	RequestId request {};
	uint32_t ordinal = 0; //! of the next batch; 0 = the entry has no sequence number yet
	std::vector<Batch> pending;
	//! Of tables, by key, as they are now: hash and encoded definition.
	std::map<std::string, std::pair<std::string, std::string>> definitions;
	std::vector<std::string> created;
	std::set<std::string> dropped;
	//! What must be written to `__quack.state`.
	std::set<std::pair<raft::GroupId, uint64_t>> changed_segments;
	std::set<raft::GroupId> changed_floors;
	bool is_setting_changed = false;
};

} // namespace catalog
} // namespace quack
