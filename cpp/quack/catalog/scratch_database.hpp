//! A DuckDB instance for one look at a catalog file.
#pragma once

#include "duckdb/main/connection.hpp"
#include "duckdb/main/database.hpp"

namespace quack {
namespace catalog {

//! In memory, on its own, and it knows the scalar functions, types and collations of `host`: DuckDB binds defaults,
//! checks and generated columns when it opens a file, and a self-contained extension carries the core of DuckDB only.
class ScratchDatabase {
public:
	explicit ScratchDatabase(duckdb::DatabaseInstance &host);

	duckdb::DatabaseInstance &Instance() {
		return *database.instance;
	}
	duckdb::Connection &Session() {
		return session;
	}

private:
	duckdb::DuckDB database;
	duckdb::Connection session;
};

} // namespace catalog
} // namespace quack
