# Compiler cache, warnings, sanitizers, and the helper that declares a layer.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths inside the tree are rewritten, so that a fresh clone hits the cache of an earlier one.
  # The sloppiness is what precompiled headers need; nothing here uses __TIME__.
  set(ccache_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache_launcher})
endif()
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
  add_link_options(-fuse-ld=lld)
endif()

# -O1 keeps builds short; the hot loops (CRC, codecs) do not change at -O2. Releases use QUACK_SELF_CONTAINED, -O2.
if(QUACK_SELF_CONTAINED)
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  add_compile_options(-march=x86-64-v2)
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
endif()

set(QUACK_SANITIZE_FLAGS "")
if(QUACK_SANITIZE)
  set(QUACK_SANITIZE_FLAGS -fsanitize=${QUACK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_compile_options(${QUACK_SANITIZE_FLAGS})
  add_link_options(${QUACK_SANITIZE_FLAGS})
endif()

set(QUACK_WARNINGS -Wall -Wextra -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual -Werror)

# quack_layer(<name> SOURCES <files> [LINKS <targets>]): one static library. A layer sees the headers of the layers it
# links and nothing else: its own folder is exported through a private include root that holds only links to it.
function(quack_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;LINKS" ${ARGN})
  add_library(quack_${name} STATIC ${LAYER_SOURCES})
  set(root ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${root}/quack)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/cpp/quack/${name} ${root}/quack/${name} SYMBOLIC)
  target_include_directories(quack_${name} PUBLIC ${root})
  target_link_libraries(quack_${name} PUBLIC ${LAYER_LINKS})
  target_compile_options(quack_${name} PRIVATE ${QUACK_WARNINGS})
endfunction()
