# quack_duckdb: DuckDB's headers of the pinned version. Symbols come from the host process (default) or from
# libduckdb_static.a (QUACK_SELF_CONTAINED); extension.cmake links accordingly.
file(READ ${CMAKE_CURRENT_LIST_DIR}/duckdb_pin.json QUACK_DUCKDB_PIN)
string(JSON QUACK_DUCKDB_VERSION GET "${QUACK_DUCKDB_PIN}" version)
string(JSON QUACK_DUCKDB_DESCRIBE GET "${QUACK_DUCKDB_PIN}" git_describe)
string(JSON QUACK_DUCKDB_PLATFORM GET "${QUACK_DUCKDB_PIN}" platform)

if(NOT EXISTS ${QUACK_DUCKDB_SOURCE}/src/include/duckdb.hpp)
  message(FATAL_ERROR "QUACK_DUCKDB_SOURCE='${QUACK_DUCKDB_SOURCE}' is no DuckDB source tree. "
                      "Run `make build`, or pass -DQUACK_DUCKDB_SOURCE=$(python3 cpp/cmake/fetch_duckdb.py).")
endif()

add_library(quack_duckdb INTERFACE)
target_include_directories(
  quack_duckdb SYSTEM
  INTERFACE ${QUACK_DUCKDB_SOURCE}/src/include ${QUACK_DUCKDB_SOURCE}/third_party/fmt/include
            ${QUACK_DUCKDB_SOURCE}/third_party/zstd/include ${QUACK_DUCKDB_SOURCE}/third_party/httplib
            ${QUACK_DUCKDB_SOURCE}/third_party/yyjson/include ${QUACK_DUCKDB_SOURCE}/third_party/re2)
target_compile_definitions(quack_duckdb INTERFACE QUACK_DUCKDB_VERSION="${QUACK_DUCKDB_DESCRIBE}")
