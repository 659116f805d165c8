//! What the simulators' commands read from their arguments.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace quack {
namespace sim {

//! Says what is wrong and ends the process with code 2.
[[noreturn]] inline void Usage(const char *program, const std::string &problem) {
	std::fprintf(stderr, "%s: %s; see %s --help\n", program, problem.c_str(), program);
	std::exit(2);
}

//! `text`: what followed the flag; may be null.
inline uint64_t Number(const char *program, const std::string &flag, const char *text) {
	char *end = nullptr;
	auto value = text != nullptr ? std::strtoull(text, &end, 10) : 0;
	if (text == nullptr || *text == 0 || *end != 0) {
		Usage(program, flag + " needs a whole number, got '" + (text != nullptr ? text : "nothing") + "'");
	}
	return value;
}

} // namespace sim
} // namespace quack
