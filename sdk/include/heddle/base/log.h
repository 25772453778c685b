// Log of one engine. The host sets the sink, so there is no process-wide state.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "heddle/base/export.h"

namespace heddle {

// Severity of a line.
enum class LogLevel { debug, info, warning, error };

// Copies share one sink. All functions may be called from several threads.
class HEDDLE_API Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view room, std::string_view text)>;

  Log();                    // discards every line
  explicit Log(Sink sink);  // passes every line to the sink

  // Writes lines such as "[rank 3] [mesh] text" to standard error through spdlog. Rank 0 prints info, every
  // rank prints warnings and errors.
  static Log to_stderr(int rank);

  void debug(std::string_view room, std::string_view text) const;
  void info(std::string_view room, std::string_view text) const;
  void warning(std::string_view room, std::string_view text) const;
  void error(std::string_view room, std::string_view text) const;

 private:
  std::shared_ptr<const Sink> sink_;
};

}  // namespace heddle
