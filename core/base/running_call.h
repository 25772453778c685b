// The function of a plugin that a thread runs, for a report of a crash and for a watcher in another thread.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "heddle/base/export.h"

namespace heddle {

class HEDDLE_API RunningCall {
 public:
  // "'acme': finish_gradients()"; empty: no function of a plugin.
  std::string text() const;

  struct View {
    std::string_view plugin, doing;  // empty: no function of a plugin
  };
  // The call that this thread runs. Safe in a handler of signals.
  static View current();

  // From now on the calls of this thread are written to `call`; null: no longer. It outlives the thread.
  static void watch(RunningCall* call);

  // Marks one call. `plugin` and `doing` outlive the scope. Allocates nothing where no watcher is set.
  class HEDDLE_API Scope {
   public:
    Scope(std::string_view plugin, std::string_view doing);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    View before_;
    RunningCall* call_;
    std::string outer_;
  };

 private:
  std::string exchange(std::string text);
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace heddle
