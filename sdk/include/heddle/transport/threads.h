// Ranks as threads of one process, for tests and for hosts that want several ranks in one address space.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

namespace mesh {
struct ThreadWorld;
}

// A world whose ranks are threads. The rank that arrives last performs a collective, so the order in which
// ranks wait for several collectives does not matter. Ranks that call different collectives get
// Error{internal} with both calls.
class HEDDLE_API ThreadWorld {
 public:
  // timeout: how long a rank waits for the others in one collective before Error{timeout}.
  explicit ThreadWorld(int size, std::chrono::milliseconds timeout = std::chrono::minutes(2), Log log = {});
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  Rendezvous& rank(int rank);  // used only by that rank's thread; lives as long as the world

  // Runs `body` on one thread per rank, each with one intra-op thread, and joins the threads. If a rank
  // throws, or returns while others wait for it, the other ranks get Error{rank_lost} naming it. Rethrows the
  // first error that is not such a rank_lost.
  void run(const std::function<void(Rendezvous&)>& body);

  // Creates a world of `size` ranks and calls run(body).
  static void run(int size, const std::function<void(Rendezvous&)>& body);

 private:
  std::shared_ptr<mesh::ThreadWorld> world_;
  std::vector<std::unique_ptr<Rendezvous>> ranks_;
};

}  // namespace heddle
