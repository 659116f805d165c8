# The loadable extension. Host-linked: quack.duckdb_extension is a small trampoline that makes the host's DuckDB symbols
# visible and then loads quack.duckdb_extension.impl.so beside it. Self-contained: one file with DuckDB inside.
set(QUACK_NATIVE_DIR ${CMAKE_SOURCE_DIR}/python/quack/_native CACHE PATH "Where the extension is put")
file(MAKE_DIRECTORY ${QUACK_NATIVE_DIR})
set(extension_file ${QUACK_NATIVE_DIR}/quack.duckdb_extension)

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

add_library(quack_impl MODULE quack/quack_extension.cpp)
target_link_libraries(quack_impl PRIVATE quack_sql)
target_compile_options(quack_impl PRIVATE ${QUACK_WARNINGS})
set_target_properties(quack_impl PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden)
# OpenSSL and nghttp2 are inside: their symbols must not meet the host's own copies.
target_link_options(quack_impl PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections)

if(QUACK_SELF_CONTAINED)
  if(NOT EXISTS "${QUACK_DUCKDB_STATIC}")
    message(FATAL_ERROR "QUACK_SELF_CONTAINED needs QUACK_DUCKDB_STATIC; run `make wheel`.")
  endif()
  target_link_libraries(quack_impl PRIVATE ${QUACK_DUCKDB_STATIC} Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(quack_impl PRIVATE -Wl,-z,defs -Wl,-s)
  quack_append_footer(quack_impl ${extension_file})
  add_custom_command(TARGET quack_impl POST_BUILD
                     COMMAND ${CMAKE_COMMAND} -E rm -f ${extension_file}.impl.so)
else()
  set_target_properties(quack_impl PROPERTIES OUTPUT_NAME quack.duckdb_extension.impl SUFFIX .so
                                              LIBRARY_OUTPUT_DIRECTORY ${QUACK_NATIVE_DIR})
  add_library(quack_trampoline MODULE trampoline.cpp)
  target_link_libraries(quack_trampoline PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(quack_trampoline PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden)
  quack_append_footer(quack_trampoline ${extension_file})
  add_dependencies(quack_trampoline quack_impl)
endif()

install(FILES ${extension_file} DESTINATION quack/_native)
