// The log's sink, and the one that writes to standard error through spdlog.
#include "heddle/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <utility>

namespace heddle {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

Log::Log() = default;
Log::Log(Sink sink) : sink_(std::make_shared<const Sink>(std::move(sink))) {}

Log Log::to_stderr(int rank) {
  auto logger = std::make_shared<spdlog::logger>("heddle", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%v");
  logger->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  return Log([logger, rank](LogLevel level, std::string_view room, std::string_view text) {
    const char* mark = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
    logger->log(level_of(level), "[rank {}] [{}] {}{}", rank, std::string(room), mark, std::string(text));
  });
}

void Log::debug(std::string_view room, std::string_view text) const {
  if (sink_) (*sink_)(LogLevel::debug, room, text);
}
void Log::info(std::string_view room, std::string_view text) const {
  if (sink_) (*sink_)(LogLevel::info, room, text);
}
void Log::warning(std::string_view room, std::string_view text) const {
  if (sink_) (*sink_)(LogLevel::warning, room, text);
}
void Log::error(std::string_view room, std::string_view text) const {
  if (sink_) (*sink_)(LogLevel::error, room, text);
}

}  // namespace heddle
