#include "quack/common/log.hpp"

#include <cstdio>
#include <ctime>
#include <mutex>

namespace quack {

namespace {

struct SinkState {
	std::mutex lock; //! guards sink and level; held while a line is written, so that lines never interleave
	LogSink sink;
	LogLevel level = LogLevel::Info;
};

SinkState &GlobalSink() {
	static auto *state = new SinkState(); // never destroyed: threads may log during exit
	return *state;
}

void AppendJsonString(std::string &out, const std::string &text) {
	out.push_back('"');
	for (auto c : text) {
		auto byte = static_cast<unsigned char>(c);
		if (c == '"' || c == '\\') {
			out.push_back('\\');
			out.push_back(c);
		} else if (byte < 0x20) {
			char escaped[8];
			std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
			out += escaped;
		} else {
			out.push_back(c);
		}
	}
	out.push_back('"');
}

std::string WallTimestamp() {
	timespec now {};
	clock_gettime(CLOCK_REALTIME, &now); // for people only; nothing decides by it
	tm utc {};
	gmtime_r(&now.tv_sec, &utc);
	char text[40];
	auto size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
	std::snprintf(text + size, sizeof(text) - size, ".%03ldZ", now.tv_nsec / 1000000);
	return text;
}

const char *LevelName(LogLevel level) {
	static const char *const names[] = {"debug", "info", "warn", "error"};
	return names[static_cast<size_t>(level)];
}

} // namespace

void SetLogSink(LogSink sink, LogLevel level) {
	auto &state = GlobalSink();
	std::lock_guard<std::mutex> guard(state.lock);
	state.sink = std::move(sink);
	state.level = level;
}

void Log(LogLevel level, const char *component, const char *event, std::initializer_list<LogField> fields) {
	auto &state = GlobalSink();
	std::lock_guard<std::mutex> guard(state.lock);
	if (level < state.level) {
		return;
	}
	std::string line = "{\"time\":\"" + WallTimestamp() + "\",\"level\":\"" + LevelName(level) + "\",\"component\":";
	AppendJsonString(line, component);
	line += ",\"event\":";
	AppendJsonString(line, event);
	for (auto &field : fields) {
		line.push_back(',');
		AppendJsonString(line, field.first);
		line.push_back(':');
		AppendJsonString(line, field.second);
	}
	line.push_back('}');
	if (state.sink) {
		state.sink(level, line);
	} else {
		std::fprintf(stderr, "%s\n", line.c_str());
	}
}

} // namespace quack
