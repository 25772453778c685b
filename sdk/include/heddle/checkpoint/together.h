// Work on disk that all ranks do together: it succeeds on all ranks or fails on all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::checkpoint {

// A meeting of all ranks after `work`; `key` is used once in a run. If the work of some ranks throws, the
// Error of the lowest of them is thrown on every rank. The work may take longer than the meeting's timeout,
// which limits ranks that do not respond; rank 0 then warns.
HEDDLE_API void together(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

// The same; rank 0 gets the results of all ranks in rank order, the others get nothing.
HEDDLE_API std::vector<std::string> tell_first(Rendezvous& meeting, const std::string& key,
                                               const std::function<std::string()>& work);

// The same for work that rank 0 does alone.
HEDDLE_API void on_first(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

}  // namespace heddle::checkpoint
