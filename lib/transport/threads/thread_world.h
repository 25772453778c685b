// The shared state of the threads of a world: lost ranks, exchanged texts and pending collectives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "heddle/base/log.h"
#include "heddle/mesh/call.h"

namespace heddle::mesh {

// One collective, or one send with its receive: filled by the ranks as they arrive, performed by the last of
// them.
struct ThreadCall {
  std::vector<Call> calls;
  std::vector<bool> came;
  int missing = 0;
  bool done = false;
  std::exception_ptr fault;  // every rank of the call gets it
};

// One exchange of all ranks.
struct TextExchange {
  std::map<int, std::string> texts;  // by rank
  std::vector<std::string> answers;  // empty: not answered yet
  int read = 0;                      // how many ranks have their answer
};

// The shared half of one group.
struct ThreadGroup {
  std::vector<int> ranks;
  std::map<int64_t, std::shared_ptr<ThreadCall>> collectives;  // by their number
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<ThreadCall>>>
      transfers;  // by source, target, tag
};

struct ThreadWorld {
  ThreadWorld(int size, std::chrono::milliseconds timeout, Log log);

  // Waits until `ready`. Throws when a rank failed, when one of `awaited()` has left, or after the timeout.
  void wait(std::unique_lock<std::mutex>& lock, const std::string& waited, const std::function<bool()>& ready,
            const std::function<std::vector<int>()>& awaited);

  void leave(int rank);
  void fail(int rank, const std::string& how);

  const int size;
  const std::chrono::milliseconds timeout;
  const Log log;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> left;
  int failed = -1;                            // the first rank that threw
  std::string how;                            // what it threw
  std::map<std::string, TextExchange> texts;  // by key, until all have their answers
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<ThreadGroup>> groups;  // by ranks and count
};

}  // namespace heddle::mesh
