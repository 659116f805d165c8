#include <cerrno>
#include <cstring>

#include <sys/random.h>

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/client_context.hpp"
#include "quack/catalog/read_set.hpp"
#include "quack/catalog/replicated_database.hpp"

namespace quack {
namespace catalog {
namespace {

constexpr const char *STATE_NAME = "quack_session";
constexpr MonotonicNs DEFAULT_TIMEOUT = 30 * NS_PER_SECOND;
const RequestId NO_REQUEST {};
constexpr size_t REQUEST_RANDOM_BYTES = 10;

int HexValue(char digit) {
	if (digit >= '0' && digit <= '9') {
		return digit - '0';
	}
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

//! The first word of the statement is one of those.
bool EndsTransaction(const std::string &statement) {
	auto begin = statement.find_first_not_of(" \t\r\n(");
	if (begin == std::string::npos) {
		return false;
	}
	auto end = statement.find_first_of(" \t\r\n;", begin);
	auto word = duckdb::StringUtil::Lower(statement.substr(begin, end == std::string::npos ? end : end - begin));
	return word == "commit" || word == "rollback" || word == "end" || word == "abort";
}

} // namespace

std::string RequestIdToString(const RequestId &id) {
	static const char *digits = "0123456789abcdef";
	std::string text;
	for (auto byte : id) {
		text.push_back(digits[byte >> 4]);
		text.push_back(digits[byte & 15]);
	}
	return text;
}

Result<RequestId> RequestIdFromString(const std::string &text) {
	RequestId id {};
	bool good = text.size() == 2 * id.size();
	for (size_t i = 0; good && i < id.size(); i++) {
		auto high = HexValue(text[2 * i]);
		auto low = HexValue(text[2 * i + 1]);
		good = high >= 0 && low >= 0;
		id[i] = uint8_t(high * 16 + low);
	}
	if (!good) {
		return Status(ErrorCode::InvalidArgument,
		              "'" + text + "' is no transaction token: expected 32 lower-case hexadecimal digits");
	}
	return id;
}

RequestId NewRequestId(raft::LogIndex base) {
	RequestId id {};
	size_t filled = 0;
	while (filled < REQUEST_RANDOM_BYTES) {
		auto got = getrandom(id.data() + filled, REQUEST_RANDOM_BYTES - filled, 0);
		QUACK_CHECK(got > 0 || errno == EINTR, "the operating system gives no random bytes");
		filled += got > 0 ? size_t(got) : 0;
	}
	for (size_t i = id.size(); i > REQUEST_RANDOM_BYTES; i--, base >>= 8) {
		id[i - 1] = uint8_t(base);
	}
	return id;
}

raft::LogIndex RequestBase(const RequestId &id) {
	raft::LogIndex base = 0;
	for (size_t i = REQUEST_RANDOM_BYTES; i < id.size(); i++) {
		base = (base << 8) | id[i];
	}
	return base;
}

SessionState &SessionState::Get(duckdb::ClientContext &context) {
	// The context owns the state and never drops it while it lives.
	return *context.registered_state->GetOrCreate<SessionState>(STATE_NAME);
}

void SessionState::SetNextRequestId(const RequestId &id, raft::LogIndex base) {
	std::lock_guard<std::mutex> guard(lock);
	next_request_id = id;
	next_request_base = base;
}

void SessionState::SetInTurn(bool is_in_turn_p) {
	std::lock_guard<std::mutex> guard(lock);
	is_in_turn = is_in_turn_p;
}

bool SessionState::IsInTurn() const {
	std::lock_guard<std::mutex> guard(lock);
	return is_in_turn;
}

void SessionState::SetDeadline(MonotonicNs deadline_p) {
	std::lock_guard<std::mutex> guard(lock);
	deadline = deadline_p;
}

void SessionState::SetConsistency(Consistency consistency_p) {
	std::lock_guard<std::mutex> guard(lock);
	consistency = consistency_p;
}

void SessionState::RaiseFloor(raft::GroupId group, raft::LogIndex index) {
	std::lock_guard<std::mutex> guard(lock);
	auto &entry = floor[group];
	entry = std::max(entry, index);
}

Consistency SessionState::GetConsistency() const {
	std::lock_guard<std::mutex> guard(lock);
	return consistency;
}

bool SessionState::HasDeadline() const {
	std::lock_guard<std::mutex> guard(lock);
	return deadline != 0;
}

MonotonicNs SessionState::OperationDeadline() const {
	std::lock_guard<std::mutex> guard(lock);
	return deadline != 0 ? deadline : SystemClock().Now() + DEFAULT_TIMEOUT;
}

std::map<raft::GroupId, raft::LogIndex> SessionState::Floor() const {
	std::lock_guard<std::mutex> guard(lock);
	return floor;
}

RequestId SessionState::TakeRequestId(raft::LogIndex *base) {
	std::lock_guard<std::mutex> guard(lock);
	bool is_set = next_request_id != NO_REQUEST;
	auto id = is_set ? next_request_id : NewRequestId();
	if (base != nullptr) {
		*base = is_set ? next_request_base : UINT64_MAX;
	}
	next_request_id = NO_REQUEST;
	next_request_base = UINT64_MAX;
	return id;
}

std::optional<CommitOutcome> SessionState::LastCommit() const {
	std::lock_guard<std::mutex> guard(lock);
	return last_commit;
}

void SessionState::SetLastCommit(CommitOutcome outcome) {
	std::lock_guard<std::mutex> guard(lock);
	if (outcome.index != 0) {
		auto &entry = floor[outcome.group];
		entry = std::max(entry, outcome.index);
	}
	last_commit = std::move(outcome);
}

Status SessionState::Doomed() const {
	std::lock_guard<std::mutex> guard(lock);
	return doomed;
}

void SessionState::Doom(Status status) {
	std::lock_guard<std::mutex> guard(lock);
	doomed = std::move(status);
	doom_in_progress = true;
}

void SessionState::DoomDelivered() {
	std::lock_guard<std::mutex> guard(lock);
	doom_in_progress = false;
}

void SessionState::NoteStart(uint64_t number) {
	std::lock_guard<std::mutex> guard(lock);
	started_again = started_in == number;
	started_in = number;
}

bool SessionState::LostEffects() const {
	std::lock_guard<std::mutex> guard(lock);
	return started_again;
}

bool SessionState::InterruptForEviction(duckdb::ClientContext &context) {
	std::lock_guard<std::mutex> guard(lock);
	if (!is_ending_transaction) {
		context.Interrupt();
	}
	return !is_ending_transaction;
}

void SessionState::QueryBegin(duckdb::ClientContext &context) {
	bool is_ending = EndsTransaction(context.GetCurrentQuery());
	bool hidden = ReadsAreHidden(context);
	std::lock_guard<std::mutex> guard(lock);
	reads_were_hidden = reads_were_hidden || hidden;
	is_ending_transaction = is_ending;
	if (is_ending && doom_in_progress) {
		context.ClearInterrupt(); // was meant for the statement before
	}
}

bool SessionState::ReadsWereHidden() const {
	std::lock_guard<std::mutex> guard(lock);
	return reads_were_hidden;
}

duckdb::RebindQueryInfo SessionState::OnRebindPreparedStatement(duckdb::ClientContext &context,
                                                                duckdb::BindPreparedStatementCallbackInfo &,
                                                                duckdb::RebindQueryInfo current) {
	// The reads of a finished plan were noted for another transaction, if at all.
	return IsSerializable(context) ? duckdb::RebindQueryInfo::ATTEMPT_TO_REBIND : current;
}

void SessionState::TransactionBegin(duckdb::MetaTransaction &, duckdb::ClientContext &) {
	std::lock_guard<std::mutex> guard(lock);
	reads_were_hidden = false;
	if (!doom_in_progress) {
		doomed = Status::Ok();
	}
}

} // namespace catalog
} // namespace quack
