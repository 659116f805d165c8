//! Structured log lines: one JSON object per line with time, level, component, event and fields. Secrets never go in.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace quack {

enum class LogLevel : uint8_t { Debug = 0, Info = 1, Warn = 2, Error = 3 };

//! One key and its already printed value.
using LogField = std::pair<std::string, std::string>;

//! Where lines go. Must be callable from any thread.
using LogSink = std::function<void(LogLevel level, const std::string &line)>;

//! Replaces the process-wide sink and level (default: standard error, Info). Thread-safe.
void SetLogSink(LogSink sink, LogLevel level);

//! Writes one line. `event` is a fixed snake_case word, e.g. "leader_elected"; variables go into `fields`.
void Log(LogLevel level, const char *component, const char *event, std::initializer_list<LogField> fields);

} // namespace quack
