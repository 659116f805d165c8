#include "quack/common/status.hpp"

#include <cstdio>
#include <cstdlib>

namespace quack {

namespace {

[[noreturn]] void AbortOnPanic(const char *file, int line, const char *condition, const char *message) {
	std::fprintf(stderr, "quack: panic at %s:%d: %s (%s)\n", file, line, message, condition);
	std::abort();
}

PanicHook panic_hook = AbortOnPanic;

} // namespace

PanicHook SetPanicHook(PanicHook hook) {
	auto previous = panic_hook;
	panic_hook = hook;
	return previous;
}

void Panic(const char *file, int line, const char *condition, const char *message) {
	panic_hook(file, line, condition, message);
	std::abort();
}

const char *ErrorCodeName(ErrorCode code) {
	static const char *const names[] = {
	    "ok",        "invalid_argument", "not_found",      "already_exists", "corruption",        "io_error",
	    "disk_full", "unavailable",      "not_leader",     "overloaded",     "deadline_exceeded", "outcome_unknown",
	    "conflict",  "constraint",       "schema_changed", "unauthorized",   "incompatible",      "not_supported",
	    "degraded",  "cancelled",        "internal",
	};
	auto position = static_cast<size_t>(code);
	return position < sizeof(names) / sizeof(names[0]) ? names[position] : "unknown";
}

std::string Status::ToString() const {
	return IsOk() ? "ok" : std::string(ErrorCodeName(code)) + ": " + message;
}

} // namespace quack
