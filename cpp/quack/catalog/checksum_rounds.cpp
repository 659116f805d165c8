#include "quack/catalog/checksum_rounds.hpp"

#include <algorithm>
#include <tuple>

namespace quack {
namespace catalog {
namespace {

constexpr uint8_t REPORT_VERSION = 1;
//! Rounds that are kept because they are new, and because something differed.
constexpr size_t NEWEST_KEPT = 2;
constexpr size_t DIFFERENT_KEPT = 4;

using ObjectKey = std::tuple<std::string, std::string, std::string>;
using Reports = std::map<std::string, ChecksumReport>;
//! What every member says about every object.
using Values = std::map<ObjectKey, std::map<std::string, const ObjectHash *>>;

ObjectKey KeyOf(const ObjectHash &object) {
	return {object.schema, object.type, object.object};
}

Values Collect(const Reports &reports) {
	Values values;
	for (auto &report : reports) {
		for (auto &object : report.second.objects) {
			values[KeyOf(object)][report.first] = &object;
		}
	}
	return values;
}

std::string HashOf(const std::map<std::string, const ObjectHash *> &said, const std::string &node_id) {
	auto found = said.find(node_id);
	return found == said.end() ? std::string() : found->second->hash;
}

std::string Describe(const ObjectHash &value) {
	return value.hash.empty() ? std::string("it does not exist")
	                          : std::to_string(value.rows) + " rows, hash " + value.hash;
}

bool IsIn(const std::vector<std::string> &names, const std::string &name) {
	return std::find(names.begin(), names.end(), name) != names.end();
}

const char *VerdictOf(const ObjectVerdict &verdict, const std::string &hash) {
	if (verdict.is_decided) {
		return hash == verdict.majority.hash ? "equal" : "odd";
	}
	return verdict.is_undecidable ? "no_majority" : (verdict.differs ? "differs" : "pending");
}

ObjectVerdict JudgeObject(const ObjectKey &key, const std::map<std::string, const ObjectHash *> &said,
                          const Reports &reports, const std::vector<std::string> &voters) {
	ObjectVerdict verdict;
	std::tie(verdict.schema, verdict.type, verdict.object) = key;
	verdict.majority.schema = verdict.schema;
	verdict.majority.type = verdict.type;
	verdict.majority.object = verdict.object;
	std::map<std::string, size_t> votes;
	std::map<std::string, size_t> values;
	size_t counted = 0;
	for (auto &report : reports) {
		if (!report.second.failure.empty()) {
			continue;
		}
		auto hash = HashOf(said, report.first);
		values[hash]++;
		if (IsIn(voters, report.first)) {
			votes[hash]++;
			counted++;
		}
	}
	verdict.differs = values.size() > 1;
	size_t most = 0;
	for (auto &value : votes) {
		if (value.second > voters.size() / 2) {
			verdict.is_decided = true;
			verdict.majority.hash = value.first;
		}
		most = std::max(most, value.second);
	}
	auto most_possible = most + voters.size() - counted;
	verdict.is_undecidable =
	    !verdict.is_decided && verdict.differs && !voters.empty() && most_possible <= voters.size() / 2;
	for (auto &report : reports) {
		if (!report.second.failure.empty()) {
			continue;
		}
		auto found = said.find(report.first);
		auto value = found == said.end() ? ObjectHash() : *found->second;
		verdict.values += (verdict.values.empty() ? "" : "; ") + report.second.node_id + ": " + Describe(value);
		if (verdict.is_decided && value.hash == verdict.majority.hash) {
			verdict.majority.rows = value.rows;
		} else if (verdict.is_decided) {
			verdict.odd.push_back({report.second.member, report.second.node_id, report.second.life, std::move(value)});
		}
	}
	return verdict;
}

void PutObject(ByteWriter &writer, const ObjectHash &object) {
	writer.PutBytes(object.schema);
	writer.PutBytes(object.object);
	writer.PutBytes(object.type);
	writer.PutVarint(object.rows);
	writer.PutBytes(object.hash);
}

ObjectHash GetObject(ByteReader &reader) {
	ObjectHash object;
	object.schema = std::string(reader.GetBytes());
	object.object = std::string(reader.GetBytes());
	object.type = std::string(reader.GetBytes());
	object.rows = reader.GetVarint();
	object.hash = std::string(reader.GetBytes());
	return object;
}

} // namespace

std::string Encode(const ChecksumReport &report) {
	std::string bytes;
	ByteWriter writer(bytes);
	writer.PutU8(REPORT_VERSION);
	writer.PutU64(report.member);
	writer.PutBytes(report.node_id);
	writer.PutU64(report.life);
	writer.PutU64(report.index);
	writer.PutVarint(report.cost_us);
	writer.PutBytes(report.failure);
	writer.PutVarint(report.objects.size());
	for (auto &object : report.objects) {
		PutObject(writer, object);
	}
	return bytes;
}

Result<ChecksumReport> DecodeChecksumReport(ByteView bytes) {
	ByteReader reader(bytes);
	auto version = reader.GetU8();
	ChecksumReport report;
	report.member = reader.GetU64();
	report.node_id = std::string(reader.GetBytes());
	report.life = reader.GetU64();
	report.index = reader.GetU64();
	report.cost_us = reader.GetVarint();
	report.failure = std::string(reader.GetBytes());
	auto count = reader.GetVarint();
	for (uint64_t i = 0; i < count && !reader.Failed(); i++) {
		report.objects.push_back(GetObject(reader));
		report.objects.back().applied_index = report.index;
	}
	if (version != REPORT_VERSION || !reader.Done()) {
		return Status(ErrorCode::Corruption, "log entry holds a checksum report that this node cannot read (version " +
		                                         std::to_string(unsigned(version)) + ")");
	}
	return report;
}

std::vector<ObjectVerdict> ChecksumRounds::Judge(const Round &round, const std::vector<std::string> &voters) {
	std::vector<ObjectVerdict> verdicts;
	for (auto &entry : Collect(round)) {
		verdicts.push_back(JudgeObject(entry.first, entry.second, round, voters));
	}
	return verdicts;
}

std::vector<ObjectVerdict> ChecksumRounds::Add(ChecksumReport report, const std::vector<std::string> &voters) {
	auto index = report.index;
	auto &round = rounds[index];
	round[report.node_id] = std::move(report);
	auto verdicts = Judge(round, voters);
	verdicts.erase(std::remove_if(verdicts.begin(), verdicts.end(),
	                              [](const ObjectVerdict &verdict) { return !verdict.differs; }),
	               verdicts.end());
	Forget(voters);
	return verdicts;
}

void ChecksumRounds::Forget(const std::vector<std::string> &voters) {
	size_t newer = 0;
	size_t different = 0;
	for (auto round = rounds.end(); round != rounds.begin();) {
		--round;
		auto verdicts = Judge(round->second, voters);
		auto differs =
		    std::any_of(verdicts.begin(), verdicts.end(), [](const ObjectVerdict &verdict) { return verdict.differs; });
		auto is_kept = newer < NEWEST_KEPT || (differs && different < DIFFERENT_KEPT);
		newer++;
		different += differs ? 1 : 0;
		if (!is_kept) {
			round = rounds.erase(round);
		}
	}
}

std::vector<ChecksumRow> ChecksumRounds::Rows(const std::vector<std::string> &voters) const {
	std::vector<ChecksumRow> rows;
	for (auto &round : rounds) {
		auto values = Collect(round.second);
		for (auto &verdict : Judge(round.second, voters)) {
			auto &said = values[{verdict.schema, verdict.type, verdict.object}];
			for (auto &report : round.second) {
				if (!report.second.failure.empty()) {
					continue;
				}
				ChecksumRow row;
				row.index = round.first;
				row.node_id = report.second.node_id;
				auto found = said.find(report.first);
				if (found != said.end()) {
					row.hash = *found->second;
				} else {
					row.hash.schema = verdict.schema;
					row.hash.object = verdict.object;
					row.hash.type = verdict.type;
				}
				row.verdict = VerdictOf(verdict, row.hash.hash);
				rows.push_back(std::move(row));
			}
		}
		for (auto &report : round.second) {
			if (!report.second.failure.empty()) {
				ChecksumRow row;
				row.index = round.first;
				row.node_id = report.second.node_id;
				row.verdict = "not_computed";
				row.reason = report.second.failure;
				rows.push_back(std::move(row));
			}
		}
	}
	return rows;
}

uint64_t ChecksumRounds::NewestCostUs() const {
	uint64_t cost = 0;
	for (auto round = rounds.rbegin(); round != rounds.rend() && cost == 0; ++round) {
		for (auto &report : round->second) {
			cost = std::max(cost, report.second.cost_us);
		}
	}
	return cost;
}

} // namespace catalog
} // namespace quack
