// The log of one engine: a sink that the host sets; no process-wide state.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "heddle/base/export.h"

namespace heddle {

enum class LogLevel { debug, info, warning, error };

// Copies share one sink. Safe to call from several threads.
class HEDDLE_API Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view room, std::string_view text)>;

  Log();                    // drops everything
  explicit Log(Sink sink);  // every line goes to the sink

  // Lines on standard error, "[rank 3] [mesh] text" through spdlog: rank 0 shows information, every rank
  // warnings and errors.
  static Log to_stderr(int rank);

  void debug(std::string_view room, std::string_view text) const;
  void info(std::string_view room, std::string_view text) const;
  void warning(std::string_view room, std::string_view text) const;
  void error(std::string_view room, std::string_view text) const;

 private:
  std::shared_ptr<const Sink> sink_;
};

}  // namespace heddle
