//! Host-linked builds only: the file that DuckDB loads. Python loads its DuckDB library with local symbols, so the real
//! extension could not resolve them; this entry finds the calling library by its return address, makes its symbols
//! global and loads the implementation that lies beside this file. Uses no DuckDB symbol itself.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

std::string FileOf(const void *address) {
	Dl_info info {};
	if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
		throw std::runtime_error("quack: the file of a loaded library could not be found");
	}
	return info.dli_fname;
}

void *OpenOrThrow(const std::string &path, int mode) {
	auto *handle = dlopen(path.c_str(), mode);
	if (handle == nullptr) {
		const char *reason = dlerror();
		throw std::runtime_error("quack: cannot load '" + path + "': " + (reason != nullptr ? reason : "unknown"));
	}
	return handle;
}

} // namespace

extern "C" __attribute__((visibility("default"))) void quack_duckdb_cpp_init(void *loader) {
	auto host = FileOf(__builtin_return_address(0));
	// A statically linked host (the DuckDB shell) is the main program: its name cannot be opened as a library, but then
	// its symbols are global already.
	(void)dlopen(host.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
	auto self = FileOf(reinterpret_cast<const void *>(&quack_duckdb_cpp_init));
	auto *implementation = OpenOrThrow(self + ".impl.so", RTLD_NOW | RTLD_LOCAL);
	auto entry = reinterpret_cast<void (*)(void *)>(dlsym(implementation, "quack_duckdb_cpp_init"));
	if (entry == nullptr) {
		throw std::runtime_error("quack: '" + self + ".impl.so' has no entry point quack_duckdb_cpp_init");
	}
	entry(loader);
}
