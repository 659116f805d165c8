# The loadable extension. Host-linked: quack.duckdb_extension is a small trampoline that makes the host's DuckDB symbols
# visible and then loads quack.duckdb_extension.impl.so beside it. Self-contained: one file with DuckDB inside.
set(QUACK_NATIVE_DIR ${CMAKE_SOURCE_DIR}/python/quack/_native CACHE PATH "Where the extension is put")
file(MAKE_DIRECTORY ${QUACK_NATIVE_DIR})
set(extension_file ${QUACK_NATIVE_DIR}/quack.duckdb_extension)

add_library(quack_impl MODULE quack/quack_extension.cpp)
target_link_libraries(quack_impl PRIVATE quack_sql)
target_compile_options(quack_impl PRIVATE ${QUACK_WARNINGS})
set_target_properties(quack_impl PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden)
# OpenSSL and nghttp2 are inside: their symbols must not meet the host's own copies.
target_link_options(quack_impl PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections)

if(QUACK_SELF_CONTAINED)
  quack_link_duckdb(quack_impl)
  quack_append_footer(quack_impl ${extension_file})
  add_custom_command(TARGET quack_impl POST_BUILD
                     COMMAND ${CMAKE_COMMAND} -E rm -f ${extension_file}.impl.so)
else()
  set_target_properties(quack_impl PROPERTIES OUTPUT_NAME quack.duckdb_extension.impl SUFFIX .so
                                              LIBRARY_OUTPUT_DIRECTORY ${QUACK_NATIVE_DIR})
  quack_add_trampoline(quack_trampoline ${extension_file})
  add_dependencies(quack_trampoline quack_impl)
endif()

install(FILES ${extension_file} DESTINATION quack/_native)
