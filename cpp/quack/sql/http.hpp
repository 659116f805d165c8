//! The one place that includes cpp-httplib, always with the same switches: different switches in two translation units
//! would break the one-definition rule. Include it in .cpp files only (20,000 lines).
#pragma once

#ifndef CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_OPENSSL_SUPPORT
#endif
#ifndef CPPHTTPLIB_TCP_NODELAY
#define CPPHTTPLIB_TCP_NODELAY true
#endif

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#include "httplib.hpp"
#pragma GCC diagnostic pop

#include "quack/sql/http_headers.hpp"

namespace quack {
namespace sql {

namespace httplib = duckdb_httplib_openssl;

} // namespace sql
} // namespace quack
