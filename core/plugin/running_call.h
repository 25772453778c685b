// Which function of a plugin a thread is in, for a watcher in another thread: a kit that does not end.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "heddle/base/export.h"

namespace heddle::plugin {

class HEDDLE_API RunningCall {
 public:
  // "'acme': finish_gradients()"; empty: no function of a plugin.
  std::string text() const;

  // From now on the calls of this thread are written to `call`; null: no longer. It outlives the thread.
  static void watch(RunningCall* call);

  // One call. Costs one load where nobody watches.
  class HEDDLE_API Scope {
   public:
    Scope(std::string_view plugin, std::string_view doing);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RunningCall* call_;
    std::string outer_;
  };

 private:
  std::string exchange(std::string text);
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace heddle::plugin
