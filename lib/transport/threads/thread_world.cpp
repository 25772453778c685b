// Waiting among threads, and how a lost rank releases the others.
#include "lib/transport/threads/thread_world.h"

#include "heddle/mesh/call.h"
#include "lib/transport/liveness/running_time.h"

namespace heddle::mesh {
namespace {

constexpr std::chrono::milliseconds kThreadSlice{50};  // of waiting; a pause of the process counts as one

}  // namespace

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout, Log log)
    : size(size), timeout(timeout), log(std::move(log)), left(size, false) {}

void ThreadWorld::wait(std::unique_lock<std::mutex>& lock, const std::string& waited,
                       const std::function<bool()>& ready, const std::function<std::vector<int>()>& awaited) {
  int gone = -1;
  const auto decided = [&] {
    if (ready() || failed >= 0) return true;
    for (const int rank : awaited()) {
      if (left[rank]) gone = rank;
    }
    return gone >= 0;
  };
  RunningTime waited_for;
  bool in_time = true;
  while (in_time && !changed.wait_for(lock, kThreadSlice, decided)) in_time = waited_for.tick() < timeout;
  if (ready()) return;
  if (failed >= 0) throw rank_lost(failed, "failed: " + how, waited);
  if (gone >= 0) throw rank_lost(gone, "ended its work", waited);
  std::vector<Absent> absent;
  for (const int rank : awaited()) absent.push_back({rank});
  throw timed_out(waited, timeout, absent);
}

void ThreadWorld::leave(int rank) {
  const std::lock_guard lock(mutex);
  left[rank] = true;
  changed.notify_all();
}

void ThreadWorld::fail(int rank, const std::string& text) {
  const std::lock_guard lock(mutex);
  left[rank] = true;
  if (failed < 0) {
    failed = rank;
    how = text;
  }
  changed.notify_all();
}

}  // namespace heddle::mesh
