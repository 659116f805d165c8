//! See CMakeLists.txt: stands for stderr inside nghttp2's map_print_distance, which nothing calls.
#include <cstdio>

extern "C" {
extern FILE *quack_nghttp2_stderr;
FILE *quack_nghttp2_stderr = nullptr;
}
