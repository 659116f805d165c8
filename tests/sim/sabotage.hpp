//! Switches that break a rule on purpose, so that the checkers can be shown to notice: those of the core, and those of
//! what lies between the core and the disk.
#pragma once

#include "quack/raft/raft.hpp"

namespace quack {
namespace sim {

//! All false in a healthy run.
struct Sabotage : raft::Sabotage {
	bool skip_log_sync = false;        //! writes are called durable without the log's Sync
	bool skip_checksum = false;        //! the log takes every record for good (storage::LogSabotage)
	bool apply_before_durable = false; //! the core hears that its entries are durable when they are only written
	bool install_backwards = false;    //! an older snapshot replaces a newer state
	bool resume_other_image = false;   //! the part of one image that is held is taken for the beginning of another
	bool ignore_silence = false;       //! nobody wakes a quiet group whose leader is gone
	bool keep_identity = false;        //! a node whose log is damaged comes back empty under its old identity
};

} // namespace sim
} // namespace quack
