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

# quack_precompile_duckdb(<target>): DuckDB's widest headers are parsed once; that halves the compile time of a source.
# The first target owns the precompiled header, the others reuse it.
function(quack_precompile_duckdb target)
  get_property(owner GLOBAL PROPERTY QUACK_PCH_OWNER)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    return()
  endif()
  target_precompile_headers(
    ${target}
    PRIVATE
    <duckdb.hpp>
    <duckdb/catalog/catalog_entry/duck_table_entry.hpp>
    <duckdb/catalog/duck_catalog.hpp>
    <duckdb/main/attached_database.hpp>
    <duckdb/main/config.hpp>
    <duckdb/main/database_manager.hpp>
    <duckdb/main/extension/extension_loader.hpp>
    <duckdb/planner/binder.hpp>
    <duckdb/storage/data_table.hpp>
    <duckdb/transaction/duck_transaction_manager.hpp>
    <functional>
    <map>
    <optional>
    <set>)
  set_property(GLOBAL PROPERTY QUACK_PCH_OWNER ${target})
endfunction()

# quack_append_footer(<target> <file>): DuckDB's 512-byte metadata footer, after linking.
function(quack_append_footer target file)
  set(platform_file ${CMAKE_BINARY_DIR}/platform.txt)
  file(WRITE ${platform_file} "${QUACK_DUCKDB_PLATFORM}")
  add_custom_command(
    TARGET ${target}
    POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:${target}> ${file}.tmp
    COMMAND
      ${CMAKE_COMMAND} -DABI_TYPE=CPP -DEXTENSION=${file}.tmp -DPLATFORM_FILE=${platform_file}
      -DVERSION_FIELD=${QUACK_DUCKDB_DESCRIBE} -DEXTENSION_VERSION=${PROJECT_VERSION}
      -DNULL_FILE=${QUACK_DUCKDB_SOURCE}/scripts/null.txt -P ${QUACK_DUCKDB_SOURCE}/scripts/append_metadata.cmake
    COMMAND ${CMAKE_COMMAND} -E rename ${file}.tmp ${file}
    VERBATIM)
endfunction()

# quack_link_duckdb(<target>): self-contained, DuckDB inside; every symbol must be found at link time.
function(quack_link_duckdb target)
  if(NOT EXISTS "${QUACK_DUCKDB_STATIC}")
    message(FATAL_ERROR "QUACK_SELF_CONTAINED needs QUACK_DUCKDB_STATIC; run `make wheel`.")
  endif()
  target_link_libraries(${target} PRIVATE ${QUACK_DUCKDB_STATIC} Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,-s -Wl,--gc-sections -Wl,--exclude-libs,ALL)
endfunction()

# quack_add_trampoline(<target> <file>): the small loadable file in front of <file>.impl.so.
function(quack_add_trampoline target file)
  add_library(${target} MODULE ${CMAKE_SOURCE_DIR}/cpp/trampoline.cpp)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden)
  quack_append_footer(${target} ${file})
endfunction()
