// Thread-local state: the running call, and a watcher or null.
#include "core/base/running_call.h"

#include <utility>

namespace heddle {
namespace {

thread_local RunningCall::View running_now;
thread_local RunningCall* watched_call = nullptr;

}  // namespace

std::string RunningCall::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::string RunningCall::exchange(std::string text) {
  const std::lock_guard lock(mutex_);
  return std::exchange(text_, std::move(text));
}

void RunningCall::watch(RunningCall* call) {
  watched_call = call;
}

RunningCall::View RunningCall::current() {
  return running_now;
}

RunningCall::Scope::Scope(std::string_view plugin, std::string_view doing)
    : before_(std::exchange(running_now, {plugin, doing})), call_(watched_call) {
  if (call_ != nullptr) outer_ = call_->exchange("'" + std::string(plugin) + "': " + std::string(doing));
}

RunningCall::Scope::~Scope() {
  running_now = before_;
  if (call_ != nullptr) call_->exchange(std::move(outer_));
}

}  // namespace heddle
