#include "quack/catalog/placement_statements.hpp"

#include <cctype>

#include "duckdb/catalog/catalog.hpp"
#include "duckdb/catalog/catalog_entry/duck_table_entry.hpp"
#include "duckdb/catalog/catalog_search_path.hpp"
#include "duckdb/common/sql_identifier.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database_manager.hpp"
#include "duckdb/transaction/duck_transaction.hpp"
#include "duckdb/transaction/meta_transaction.hpp"
#include "quack/catalog/capture.hpp"
#include "quack/catalog/replicated_catalog.hpp"

namespace quack {
namespace catalog {
namespace {

using duckdb::SimpleToken;

constexpr const char *EXPECTED = "expected SET GROUPS <number>, SET GROUP '<name>' or SET GROUP DEFAULT";

struct ParsedStatement final : public duckdb::ParserExtensionParseData {
	explicit ParsedStatement(PlacementStatement statement_p) : statement(std::move(statement_p)) {
	}
	duckdb::unique_ptr<duckdb::ParserExtensionParseData> Copy() const override {
		return duckdb::make_uniq<ParsedStatement>(statement);
	}
	duckdb::string ToString() const override {
		return statement.ToSql(statement.name);
	}
	PlacementStatement statement;
};

struct RemoteInfo final : public duckdb::ParserExtensionInfo {
	explicit RemoteInfo(RemotePlacement remote_p) : remote(std::move(remote_p)) {
	}
	RemotePlacement remote;
};

//! Walks over the tokens of one statement.
class TokenReader {
public:
	explicit TokenReader(const duckdb::vector<SimpleToken> &tokens_p) : tokens(tokens_p) {
	}
	bool AtEnd() const {
		return position >= tokens.size() || tokens[position].text.empty() || tokens[position].text == ";";
	}
	bool Take(const char *word) {
		if (AtEnd() || !duckdb::StringUtil::CIEquals(tokens[position].text, word)) {
			return false;
		}
		position++;
		return true;
	}
	//! A part of a name; empty when there is none.
	std::string TakeName() {
		if (AtEnd()) {
			return std::string();
		}
		auto &text = tokens[position].text;
		if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
			position++;
			return duckdb::StringUtil::Replace(text.substr(1, text.size() - 2), "\"\"", "\"");
		}
		// By the text alone: the type says what the failed grammar took the word for.
		auto first = static_cast<unsigned char>(text.front());
		if (std::isalpha(first) == 0 && first != '_' && first < 0x80) {
			return std::string();
		}
		position++;
		return text;
	}
	//! A string in single quotes.
	bool TakeString(std::string &value) {
		if (AtEnd()) {
			return false;
		}
		auto &text = tokens[position].text;
		if (text.size() < 2 || text.front() != '\'' || text.back() != '\'') {
			return false;
		}
		value = duckdb::StringUtil::Replace(text.substr(1, text.size() - 2), "''", "'");
		position++;
		return true;
	}
	bool TakeNumber(uint64_t &value) {
		if (AtEnd()) {
			return false;
		}
		auto &text = tokens[position].text;
		if (text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) {
			return false;
		}
		value = std::stoull(text);
		position++;
		return true;
	}
	void Skip() {
		position++;
	}
	std::string Current() const {
		return AtEnd() ? "the end of the statement" : "\"" + tokens[position].text + "\"";
	}
	//! With a closing semicolon.
	int64_t Consumed() {
		if (position < tokens.size() && tokens[position].text == ";") {
			position++;
		}
		return static_cast<int64_t>(position);
	}

private:
	const duckdb::vector<SimpleToken> &tokens;
	size_t position = 0;
};

duckdb::ParserExtensionParseResult Refuse(const std::string &message) {
	duckdb::ParserExtensionParseResult result(message);
	result.consumed_tokens = -1;
	return result;
}

//! The table's name, behind ALTER TABLE [IF EXISTS]; empty when this is some other statement.
std::vector<std::string> ReadName(TokenReader &reader, bool &if_exists) {
	if (!reader.Take("ALTER") || !reader.Take("TABLE")) {
		return {};
	}
	if_exists = reader.Take("IF");
	if (if_exists && !reader.Take("EXISTS")) {
		return {};
	}
	std::vector<std::string> name;
	do {
		auto part = reader.TakeName();
		if (part.empty()) {
			return {};
		}
		name.push_back(part);
	} while (reader.Take("."));
	return name;
}

//! The word before a statement that cannot stand before one of these: EXPLAIN or PREPARE; nothing = neither does.
//! Leaves the reader behind it and what belongs to it.
const char *TakeWrapper(TokenReader &reader) {
	if (reader.Take("EXPLAIN")) {
		reader.Take("ANALYZE");
		if (reader.Take("(")) {
			while (!reader.AtEnd() && !reader.Take(")")) {
				reader.Skip();
			}
		}
		return "EXPLAIN";
	}
	if (reader.Take("PREPARE")) {
		reader.TakeName();
		reader.Take("AS");
		return "PREPARE";
	}
	return nullptr;
}

duckdb::ParserExtensionParseResult Parse(duckdb::ParserExtensionInfo *, const duckdb::vector<SimpleToken> &tokens) {
	TokenReader reader(tokens);
	PlacementStatement statement;
	auto wrapper = TakeWrapper(reader);
	statement.name = ReadName(reader, statement.if_exists);
	if (wrapper != nullptr) {
		auto is_ours = !statement.name.empty() && reader.Take("SET") && (reader.Take("GROUPS") || reader.Take("GROUP"));
		return is_ours ? Refuse(std::string(wrapper) + " is not supported for ALTER TABLE ... SET GROUP(S): run the "
		                                               "statement itself, it takes no parameters and moves no rows")
		               : duckdb::ParserExtensionParseResult();
	}
	if (statement.name.empty() || !reader.Take("SET")) {
		return duckdb::ParserExtensionParseResult();
	}
	auto &request = statement.request;
	if (reader.Take("GROUPS")) {
		uint64_t groups = 0;
		if (!reader.TakeNumber(groups)) {
			return Refuse(std::string("ALTER TABLE ... SET GROUPS: expected a whole number from 1 to ") +
			              std::to_string(TABLE_GROUPS_MAX) + ", got " + reader.Current());
		}
		if (groups == 0 || groups > TABLE_GROUPS_MAX) {
			return Refuse("ALTER TABLE ... SET GROUPS: a table has from 1 to " + std::to_string(TABLE_GROUPS_MAX) +
			              " groups, got " + std::to_string(groups));
		}
		request.kind = PlacementRequest::Kind::Resized;
		request.groups = static_cast<uint32_t>(groups);
	} else if (reader.Take("GROUP")) {
		if (reader.Take("DEFAULT")) {
			request.kind = PlacementRequest::Kind::Root;
		} else if (reader.TakeString(request.group)) {
			request.kind = PlacementRequest::Kind::Pinned;
			auto status = CheckGroupName(request.group);
			if (!status.IsOk()) {
				return Refuse("ALTER TABLE ... SET GROUP: " + status.Message());
			}
		} else {
			return Refuse("ALTER TABLE ... SET GROUP: expected a name in single quotes or DEFAULT, got " +
			              reader.Current());
		}
	} else {
		return duckdb::ParserExtensionParseResult();
	}
	if (!reader.AtEnd()) {
		return Refuse(std::string("ALTER TABLE: ") + EXPECTED + ", got " + reader.Current() + " behind it");
	}
	duckdb::ParserExtensionParseResult result(duckdb::make_uniq<ParsedStatement>(std::move(statement)));
	result.consumed_tokens = reader.Consumed();
	return result;
}

struct PlacementBindData final : public duckdb::TableFunctionData {
	PlacementStatement statement;
	std::string catalog;
	std::vector<std::string> table; //! schema path and name
	RemotePlacement remote;
};

struct PlacementInfo final : public duckdb::TableFunctionInfo {
	explicit PlacementInfo(RemotePlacement remote_p) : remote(std::move(remote_p)) {
	}
	RemotePlacement remote;
};

struct PlacementState final : public duckdb::GlobalTableFunctionState {
	bool is_done = false;
};

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> InitPlacement(duckdb::ClientContext &,
                                                                   duckdb::TableFunctionInitInput &) {
	return duckdb::make_uniq<PlacementState>();
}

//! Null when there is none and that may be (IF EXISTS).
duckdb::optional_ptr<duckdb::TableCatalogEntry> FindTable(duckdb::ClientContext &context,
                                                          const PlacementBindData &data) {
	duckdb::vector<duckdb::Identifier> path;
	for (size_t i = 0; i + 1 < data.table.size(); i++) {
		path.emplace_back(data.table[i]);
	}
	auto name = duckdb::QualifiedName::FromCatalogSchema(duckdb::Identifier(data.catalog), std::move(path),
	                                                     duckdb::Identifier(data.table.back()));
	auto on_missing =
	    data.statement.if_exists ? duckdb::OnEntryNotFound::RETURN_NULL : duckdb::OnEntryNotFound::THROW_EXCEPTION;
	return duckdb::Catalog::GetEntry<duckdb::TableCatalogEntry>(context, name, on_missing);
}

//! On this node, inside the session's transaction; it takes effect at COMMIT.
void PlaceHere(duckdb::ClientContext &context, const PlacementBindData &data) {
	auto entry = FindTable(context, data);
	if (!entry) {
		return;
	}
	if (!entry->IsDuckTable()) {
		throw duckdb::CatalogException("\"%s\" is no table", data.table.back());
	}
	auto &catalog = static_cast<ReplicatedCatalog &>(entry->ParentCatalog());
	catalog.Place(context, entry->Cast<duckdb::DuckTableEntry>(), data.statement.request);
}

void RunPlacement(duckdb::ClientContext &context, duckdb::TableFunctionInput &input, duckdb::DataChunk &) {
	auto &state = input.global_state->Cast<PlacementState>();
	if (state.is_done) {
		return;
	}
	state.is_done = true;
	auto &data = input.bind_data->Cast<PlacementBindData>();
	auto database = duckdb::DatabaseManager::Get(context).GetDatabase(context, duckdb::Identifier(data.catalog));
	if (database && database->GetCatalog().GetCatalogType() == STORAGE_TYPE) {
		PlaceHere(context, data);
		return;
	}
	if (data.remote && data.remote(context, data.catalog, data.statement, data.table)) {
		return;
	}
	if (database && !FindTable(context, data)) {
		return;
	}
	throw duckdb::BinderException("ALTER TABLE ... SET GROUP(S): catalog \"%s\" has no groups; it must be a catalog of "
	                              "TYPE quack",
	                              data.catalog);
}

//! Which catalog the first part of a name means, if any.
bool NamesCatalog(duckdb::ClientContext &context, const std::string &name) {
	return duckdb::DatabaseManager::Get(context).GetDatabase(context, duckdb::Identifier(name)) != nullptr;
}

//! As ALTER TABLE finds a table by its name alone: temporary ones first, then along the search path.
bool FindByName(duckdb::ClientContext &context, PlacementBindData &data) {
	duckdb::QualifiedName name {duckdb::Identifier(data.table[0])};
	auto entry =
	    duckdb::Catalog::GetEntry<duckdb::TableCatalogEntry>(context, name, duckdb::OnEntryNotFound::RETURN_NULL);
	if (!entry) {
		return false;
	}
	data.catalog = entry->ParentCatalog().GetName().GetIdentifierName();
	data.table = NameOf(*entry).schema;
	data.table.push_back(entry->name.GetIdentifierName());
	return true;
}

void Resolve(duckdb::ClientContext &context, PlacementBindData &data) {
	auto &name = data.statement.name;
	auto &search_path = *duckdb::ClientData::Get(context).catalog_search_path;
	auto first = search_path.GetDefault();
	data.table = name;
	if (name.size() > 1 && NamesCatalog(context, name[0])) {
		data.catalog = name[0];
		data.table.erase(data.table.begin());
		if (data.table.size() == 1) {
			data.table.insert(data.table.begin(), duckdb::Identifier::DefaultSchema().GetIdentifierName());
		}
		return;
	}
	data.catalog = first.GetCatalog().GetIdentifierName();
	if (data.catalog.empty()) {
		data.catalog = duckdb::DatabaseManager::TryGetDefaultDatabase(context).GetIdentifierName();
	}
	if (data.table.size() == 1 && !FindByName(context, data)) {
		auto path = first.GetSchemaPath();
		std::vector<std::string> schema;
		for (auto &part : path) {
			schema.push_back(part.GetIdentifierName());
		}
		data.table.insert(data.table.begin(), schema.begin(), schema.end());
	}
}

duckdb::unique_ptr<duckdb::FunctionData> BindPlacement(duckdb::ClientContext &context,
                                                       duckdb::TableFunctionBindInput &input,
                                                       duckdb::vector<duckdb::LogicalType> &return_types,
                                                       duckdb::vector<duckdb::Identifier> &names) {
	auto data = duckdb::make_uniq<PlacementBindData>();
	auto request = PlacementFromTag(input.inputs[0].ToString());
	if (!request.IsOk()) {
		throw duckdb::InternalException("the wish to place a table is malformed");
	}
	data->statement.request = std::move(request.Value());
	data->statement.if_exists = duckdb::BooleanValue::Get(input.inputs[1]);
	for (auto &part : duckdb::ListValue::GetChildren(input.inputs[2])) {
		data->statement.name.push_back(part.ToString());
	}
	data->remote = input.info->Cast<PlacementInfo>().remote;
	Resolve(context, *data);
	names.emplace_back("Success");
	return_types.emplace_back(duckdb::LogicalType::BOOLEAN);
	return std::move(data);
}

duckdb::ParserExtensionPlanResult Plan(duckdb::ParserExtensionInfo *info, duckdb::ClientContext &context,
                                       duckdb::unique_ptr<duckdb::ParserExtensionParseData> parsed) {
	auto &statement = parsed->Cast<ParsedStatement>().statement;
	duckdb::ParserExtensionPlanResult result;
	result.function = duckdb::TableFunction("quack_place_table",
	                                        {duckdb::LogicalType::VARCHAR, duckdb::LogicalType::BOOLEAN,
	                                         duckdb::LogicalType::LIST(duckdb::LogicalType::VARCHAR)},
	                                        RunPlacement, BindPlacement, InitPlacement);
	result.function.function_info = duckdb::make_shared_ptr<PlacementInfo>(info->Cast<RemoteInfo>().remote);
	duckdb::vector<duckdb::Value> name;
	for (auto &part : statement.name) {
		name.emplace_back(part);
	}
	result.parameters = {duckdb::Value(PlacementToTag(statement.request)), duckdb::Value::BOOLEAN(statement.if_exists),
	                     duckdb::Value::LIST(duckdb::LogicalType::VARCHAR, std::move(name))};
	PlacementBindData where;
	where.statement = statement;
	Resolve(context, where);
	auto database = duckdb::DatabaseManager::Get(context).GetDatabase(context, duckdb::Identifier(where.catalog));
	if (database) {
		duckdb::StatementProperties properties;
		properties.RegisterDBModify(database->GetCatalog(), context,
		                            duckdb::DatabaseModificationType(duckdb::DatabaseModificationType::ALTER_TABLE));
		result.modified_databases = properties.modified_databases;
	}
	result.return_type = duckdb::StatementReturnType::NOTHING;
	return result;
}

} // namespace

void RegisterPlacementStatements(duckdb::DBConfig &config, RemotePlacement remote) {
	duckdb::ParserExtension extension;
	extension.parse_function = Parse;
	extension.plan_function = Plan;
	extension.parser_info = duckdb::make_shared_ptr<RemoteInfo>(std::move(remote));
	duckdb::ParserExtension::Register(config, std::move(extension));
}

std::string PlacementStatement::ToSql(const std::vector<std::string> &table) const {
	std::string sql = if_exists ? "ALTER TABLE IF EXISTS " : "ALTER TABLE ";
	for (size_t i = 0; i < table.size(); i++) {
		sql += (i == 0 ? "" : ".") + duckdb::SQLIdentifier::ToString(table[i]);
	}
	switch (request.kind) {
	case PlacementRequest::Kind::Root:
		return sql + " SET GROUP DEFAULT";
	case PlacementRequest::Kind::Pinned:
		return sql + " SET GROUP " + duckdb::Value(request.group).ToSQLString();
	default:
		return sql + " SET GROUPS " + std::to_string(request.groups);
	}
}

} // namespace catalog
} // namespace quack
