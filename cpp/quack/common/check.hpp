//! Assertions that stay on in release builds. A failed check is a bug: it goes through one hook (default: print and
//! abort), so that a host can latch the node instead of taking down a user's process.
#pragma once

namespace quack {

//! Called with file, line, condition text and message; must not return.
using PanicHook = void (*)(const char *file, int line, const char *condition, const char *message);

//! Replaces the hook; returns the previous one. Not thread-safe: call before threads start.
PanicHook SetPanicHook(PanicHook hook);

[[noreturn]] void Panic(const char *file, int line, const char *condition, const char *message);

} // namespace quack

#define QUACK_CHECK(condition, message)                                                                                \
	do {                                                                                                               \
		if (!(condition)) {                                                                                            \
			::quack::Panic(__FILE__, __LINE__, #condition, message);                                                   \
		}                                                                                                              \
	} while (false)
