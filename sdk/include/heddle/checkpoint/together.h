// A piece of work on disk that every rank does its part of: it succeeds on all ranks or fails on all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::checkpoint {

// A meeting of all ranks after `work`; `key` is used once in a run. Where the work of some ranks threw, the
// Error of the lowest of them is thrown on every rank, so that nobody waits for one that is gone. The work
// may take longer than the meeting's timeout, which is of ranks that give no sign; rank 0 warns then.
HEDDLE_API void together(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

// The same, and rank 0 gets what the work of each rank returned, in rank order; the others get nothing.
HEDDLE_API std::vector<std::string> tell_first(Rendezvous& meeting, const std::string& key,
                                               const std::function<std::string()>& work);

// The same for work that rank 0 does alone.
HEDDLE_API void on_first(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

}  // namespace heddle::checkpoint
