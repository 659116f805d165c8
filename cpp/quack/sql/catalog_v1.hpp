//! The catalog as a stock DuckDB 1.5 client can take it.
#pragma once

#include <string>

namespace quack {
namespace sql {

//! Version 1 clients parse and bind every CREATE TABLE text they are given; one that they cannot bind (a function as
//! default, a foreign key, a newer type) fails their whole ATTACH. Returns a query of the same shape for their query
//! over the tables that gives names, types, NOT NULL and literal defaults only; any other text comes back unchanged.
std::string RewriteCatalogQueryV1(const std::string &sql);

} // namespace sql
} // namespace quack
