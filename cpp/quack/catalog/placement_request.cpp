#include "quack/catalog/placement_request.hpp"

#include <algorithm>

#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/parser/constraints/foreign_key_constraint.hpp"
#include "duckdb/parser/expression/constant_expression.hpp"
#include "quack/raft/raft.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::BinderException;
using duckdb::LogicalTypeId;
using duckdb::StringUtil;

constexpr const char *OPTION_GROUP = "quack_group";
constexpr const char *OPTION_SHARD_KEY = "quack_shard_key";
constexpr const char *OPTION_INITIAL_GROUPS = "quack_initial_groups";
constexpr const char *KNOWN_OPTIONS = "quack_group, quack_shard_key, quack_initial_groups";

const duckdb::Literal &LiteralOf(const std::string &option, const duckdb::ParsedExpression &expression) {
	if (expression.GetExpressionClass() != duckdb::ExpressionClass::CONSTANT) {
		throw BinderException("%s: expected a constant, got %s; write a string in single quotes", option,
		                      expression.ToString());
	}
	return expression.Cast<duckdb::ConstantExpression>().GetLiteral();
}

std::string TextOption(const std::string &option, const duckdb::ParsedExpression &expression) {
	auto &literal = LiteralOf(option, expression);
	if (literal.kind != duckdb::LiteralKind::STRING) {
		throw BinderException("%s: expected a string in single quotes, got %s", option, expression.ToString());
	}
	return literal.text;
}

uint64_t CountOption(const std::string &option, const duckdb::ParsedExpression &expression) {
	auto &literal = LiteralOf(option, expression);
	int64_t count = 0;
	if (!literal.TryGetInt64(count) || count < 0) {
		throw BinderException("%s: expected a whole number from 1 to %llu, got %s", option,
		                      static_cast<unsigned long long>(TABLE_GROUPS_MAX), expression.ToString());
	}
	return static_cast<uint64_t>(count);
}

//! At commas that are not within double quotes; at least one part.
std::vector<std::string> SplitNames(const std::string &text) {
	std::vector<std::string> parts(1);
	bool is_quoted = false;
	for (auto letter : text) {
		is_quoted = is_quoted != (letter == '"');
		if (letter == ',' && !is_quoted) {
			parts.emplace_back();
		} else {
			parts.back().push_back(letter);
		}
	}
	return parts;
}

std::vector<std::string> SplitShardKey(const std::string &text) {
	auto columns = SplitNames(text);
	for (auto &name : columns) {
		StringUtil::Trim(name);
		if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
			name = StringUtil::Replace(name.substr(1, name.size() - 2), "\"\"", "\"");
		}
		if (name.empty()) {
			throw BinderException("%s: expected column names separated by commas, got '%s'", OPTION_SHARD_KEY, text);
		}
	}
	return columns;
}

//! As the definition writes it.
std::string ShardColumn(const std::string &table, const duckdb::ColumnList &columns, const std::string &name) {
	if (!columns.ColumnExists(duckdb::Identifier(name))) {
		std::string known;
		for (auto &column : columns.Logical()) {
			known += (known.empty() ? "" : ", ") + column.Name().GetIdentifierName();
		}
		throw BinderException("%s: table \"%s\" has no column \"%s\"; its columns are: %s", OPTION_SHARD_KEY, table,
		                      name, known);
	}
	auto &column = columns.GetColumn(duckdb::Identifier(name));
	if (column.Generated()) {
		throw BinderException("%s: column \"%s\" of table \"%s\" is generated; only stored columns can be hashed",
		                      OPTION_SHARD_KEY, name, table);
	}
	if (!MayBeShardKey(column.Type())) {
		throw BinderException("%s: column \"%s\" of table \"%s\" has type %s, whose equal values can differ in their "
		                      "bytes; use a column of %s",
		                      OPTION_SHARD_KEY, name, table, column.Type().ToString(), SHARD_KEY_TYPES);
	}
	return column.Name().GetIdentifierName();
}

} // namespace

const char *const SHARD_KEY_TYPES = "an integer, decimal, string without collation, blob, uuid, date, time, timestamp, "
                                    "boolean or enum type";

bool MayBeShardKey(const duckdb::LogicalType &type) {
	switch (type.id()) {
	case LogicalTypeId::BOOLEAN:
	case LogicalTypeId::TINYINT:
	case LogicalTypeId::SMALLINT:
	case LogicalTypeId::INTEGER:
	case LogicalTypeId::BIGINT:
	case LogicalTypeId::HUGEINT:
	case LogicalTypeId::UTINYINT:
	case LogicalTypeId::USMALLINT:
	case LogicalTypeId::UINTEGER:
	case LogicalTypeId::UBIGINT:
	case LogicalTypeId::UHUGEINT:
	case LogicalTypeId::DECIMAL:
	case LogicalTypeId::BLOB:
	case LogicalTypeId::UUID:
	case LogicalTypeId::DATE:
	case LogicalTypeId::TIME:
	case LogicalTypeId::TIMESTAMP:
	case LogicalTypeId::TIMESTAMP_SEC:
	case LogicalTypeId::TIMESTAMP_MS:
	case LogicalTypeId::TIMESTAMP_NS:
	case LogicalTypeId::TIMESTAMP_TZ:
	case LogicalTypeId::ENUM:
		return true;
	case LogicalTypeId::VARCHAR:
		return duckdb::StringType::GetCollation(type).empty();
	default:
		return false;
	}
}

std::string EncodePlacementRequest(const PlacementRequest &request) {
	std::string bytes;
	ByteWriter out(bytes);
	out.PutU8(static_cast<uint8_t>(request.kind));
	out.PutBytes(request.group);
	out.PutVarint(request.shard_key.size());
	for (auto &column : request.shard_key) {
		out.PutBytes(column);
	}
	out.PutVarint(request.groups);
	return bytes;
}

Result<PlacementRequest> DecodePlacementRequest(ByteView bytes) {
	ByteReader in(bytes);
	PlacementRequest request;
	auto kind = in.GetU8();
	request.kind = static_cast<PlacementRequest::Kind>(kind);
	request.group = std::string(in.GetBytes());
	auto columns = in.GetVarint();
	for (uint64_t i = 0; i < columns && !in.Failed(); i++) {
		request.shard_key.emplace_back(in.GetBytes());
	}
	auto groups = in.GetVarint();
	request.groups = static_cast<uint32_t>(groups);
	if (!in.Done() || kind > static_cast<uint8_t>(PlacementRequest::Kind::Resized) || groups > TABLE_GROUPS_MAX) {
		return Status(ErrorCode::Corruption, "the wish to place a table is malformed");
	}
	return request;
}

std::string EncodePlacementChange(const PlacementChange &change) {
	std::string bytes;
	ByteWriter out(bytes);
	out.PutBytes(EncodePlacementRequest(change.request));
	out.PutBytes(raft::EncodeMembership(change.membership));
	return bytes;
}

Result<PlacementChange> DecodePlacementChange(ByteView bytes) {
	ByteReader in(bytes);
	auto request = DecodePlacementRequest(in.GetBytes());
	auto membership = raft::DecodeMembership(in.GetBytes());
	if (!in.Done() || !request.IsOk() || !membership.IsOk() || membership.Value().voters.empty()) {
		return Status(ErrorCode::Corruption, "the change of a table's placement is malformed");
	}
	return PlacementChange {std::move(request.Value()), std::move(membership.Value())};
}

std::string PlacementToTag(const PlacementRequest &request) {
	static const char *digits = "0123456789abcdef";
	std::string tag;
	for (auto letter : EncodePlacementRequest(request)) {
		auto byte = static_cast<unsigned char>(letter);
		tag.push_back(digits[byte >> 4]);
		tag.push_back(digits[byte & 15]);
	}
	return tag;
}

Result<PlacementRequest> PlacementFromTag(const std::string &tag) {
	std::string bytes;
	for (size_t i = 0; i + 1 < tag.size(); i += 2) {
		bytes.push_back(static_cast<char>(strtoul(tag.substr(i, 2).c_str(), nullptr, 16)));
	}
	return DecodePlacementRequest(bytes);
}

void CheckGroupCount(uint64_t groups) {
	if (groups == 0 || groups > TABLE_GROUPS_MAX) {
		throw BinderException("a table has from 1 to %llu groups, got %llu",
		                      static_cast<unsigned long long>(TABLE_GROUPS_MAX),
		                      static_cast<unsigned long long>(groups));
	}
}

std::optional<PlacementRequest> TakePlacementOptions(duckdb::CreateTableInfo &info) {
	if (info.options.empty()) {
		return std::nullopt;
	}
	std::optional<std::string> group;
	std::optional<std::string> shard_key;
	std::optional<uint64_t> groups;
	for (auto &option : info.options) {
		auto name = StringUtil::Lower(option.first);
		if (name == OPTION_GROUP) {
			group = TextOption(name, *option.second);
		} else if (name == OPTION_SHARD_KEY) {
			shard_key = TextOption(name, *option.second);
		} else if (name == OPTION_INITIAL_GROUPS) {
			groups = CountOption(name, *option.second);
		} else {
			throw BinderException("unknown option \"%s\" of CREATE TABLE ... WITH; known are: %s", option.first,
			                      KNOWN_OPTIONS);
		}
	}
	info.options.clear();
	PlacementRequest request;
	if (group && (shard_key || groups)) {
		throw BinderException("%s pins a table to one group, %s and %s spread it over many: use one or the other",
		                      OPTION_GROUP, OPTION_SHARD_KEY, OPTION_INITIAL_GROUPS);
	}
	if (group) {
		auto status = CheckGroupName(*group);
		if (!status.IsOk()) {
			throw BinderException("%s: %s", OPTION_GROUP, status.Message());
		}
		request.kind = PlacementRequest::Kind::Pinned;
		request.group = *group;
		return request;
	}
	if (!shard_key) {
		throw BinderException("%s needs %s: name the columns whose hash chooses the group", OPTION_INITIAL_GROUPS,
		                      OPTION_SHARD_KEY);
	}
	if (!groups) {
		throw BinderException("%s needs %s: say over how many groups the table is spread", OPTION_SHARD_KEY,
		                      OPTION_INITIAL_GROUPS);
	}
	CheckGroupCount(*groups);
	request.kind = PlacementRequest::Kind::Sharded;
	request.shard_key = SplitShardKey(*shard_key);
	request.groups = static_cast<uint32_t>(*groups);
	return request;
}

std::vector<std::string> UniqueColumns(const duckdb::UniqueConstraint &unique, const duckdb::ColumnList &columns) {
	std::vector<std::string> names;
	for (auto &index : unique.GetLogicalIndexes(columns)) {
		names.push_back(columns.GetColumn(index).Name().GetIdentifierName());
	}
	return names;
}

std::vector<std::string>
UniqueColumns(const duckdb::vector<duckdb::unique_ptr<duckdb::ParsedExpression>> &expressions) {
	std::vector<std::string> names;
	for (auto &expression : expressions) {
		names.push_back(expression->GetName().GetIdentifierName());
	}
	return names;
}

void CheckUniqueHoldsShardKey(const std::string &table, const std::vector<std::string> &shard_key,
                              const std::vector<std::string> &unique_columns, const std::string &what) {
	for (auto &column : shard_key) {
		auto held = std::any_of(unique_columns.begin(), unique_columns.end(),
		                        [&](const std::string &unique) { return StringUtil::CIEquals(unique, column); });
		if (!held) {
			std::string columns;
			for (auto &unique : unique_columns) {
				columns += (columns.empty() ? "" : ", ") + unique;
			}
			throw BinderException("%s (%s) of table \"%s\" does not contain shard key column \"%s\": rows with equal "
			                      "keys could lie in different groups, and nobody could tell that they clash; add the "
			                      "column to the key, or pin the table to one group",
			                      what, columns, table, column);
		}
	}
}

TablePlace PlaceAfter(const PlacementRequest *wish, const Placement *now, const Placements &placements) {
	TablePlace place;
	if (wish != nullptr && wish->kind != PlacementRequest::Kind::Resized) {
		place.group = wish->kind == PlacementRequest::Kind::Pinned ? wish->group : ROOT_GROUP_NAME;
		place.shard_key = wish->shard_key;
	} else if (now != nullptr) {
		place.group = placements.NameOf(now->group);
		place.shard_key = now->shard_key;
	}
	return place;
}

void CheckForeignKeyPlaces(const std::string &table, const TablePlace &place, const std::string &other,
                           const TablePlace &other_place) {
	auto where = [](const TablePlace &of) {
		return of.IsSharded() ? std::string("many groups") : "group \"" + of.group + "\"";
	};
	if (place.IsSharded() || other_place.IsSharded() || place.group != other_place.group) {
		throw BinderException("a foreign key joins table \"%s\" in %s and table \"%s\" in %s: both must live in the "
		                      "same group; create both WITH the same %s, or give both the same group in one "
		                      "transaction",
		                      table, where(place), other, where(other_place), OPTION_GROUP);
	}
}

void CheckPlacementRequest(const std::string &table, const duckdb::ColumnList &columns,
                           const duckdb::vector<duckdb::unique_ptr<duckdb::Constraint>> &constraints,
                           PlacementRequest &request) {
	if (request.kind != PlacementRequest::Kind::Sharded) {
		return;
	}
	for (auto &name : request.shard_key) {
		name = ShardColumn(table, columns, name);
	}
	auto sorted = request.shard_key;
	std::sort(sorted.begin(), sorted.end());
	if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
		throw BinderException("%s names column \"%s\" twice", OPTION_SHARD_KEY,
		                      *std::adjacent_find(sorted.begin(), sorted.end()));
	}
	for (auto &constraint : constraints) {
		if (constraint->type == duckdb::ConstraintType::FOREIGN_KEY) {
			throw BinderException("table \"%s\" has a foreign key, so it cannot be sharded: the rows that it points to "
			                      "could lie in another group; pin both tables to one group (%s)",
			                      table, OPTION_GROUP);
		}
		if (constraint->type == duckdb::ConstraintType::UNIQUE) {
			auto &unique = constraint->Cast<duckdb::UniqueConstraint>();
			CheckUniqueHoldsShardKey(table, request.shard_key, UniqueColumns(unique, columns),
			                         unique.IsPrimaryKey() ? "the primary key" : "a unique key");
		}
	}
}

std::vector<std::string> GroupNamesOf(const PlacementRequest &request) {
	if (request.kind == PlacementRequest::Kind::Pinned) {
		return {request.group};
	}
	std::vector<std::string> names;
	for (uint32_t i = 0; i < request.groups; i++) {
		names.push_back(ShardGroupName(i));
	}
	return names;
}

} // namespace catalog
} // namespace quack
