// Ranks as processes: they meet in a TCPStore, move bytes through shared memory inside a machine and with
// Gloo between machines, and watch one another.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/transport/rank_place.h"

namespace heddle {

struct GlooOptions {
  // How long a rank waits for the others in one collective, and for all to meet (dist_env.timeout_minutes).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  Log log = {};
  // Called once, from another thread, when a rank was lost and this rank has not noticed within 2 s because
  // it computes: a program ends itself here. Not called when a collective has thrown the error. May be empty.
  std::function<void(const Error&)> on_lost = {};
  // Bytes of shared memory that this rank may take for its groups; 0: none, all groups go over Gloo.
  size_t shared_memory = std::numeric_limits<size_t>::max();
};

namespace mesh {

// Meets the other ranks of the run; a world of one rank meets nobody and needs no network. A group whose
// ranks all live on this machine uses shared memory, where each of them can; HEDDLE_SHM=0 in the environment
// of one turns that off on its machine. When a rank dies, all that waits here or in a communicator throws
// Error{rank_lost} naming it within 10 s. Call leave() at the end of a healthy run and abandon() when this
// rank fails. To be destroyed after its communicators; nothing is sent then. Throws Error{timeout} naming the
// ranks that did not come, or saying that the store cannot be reached. SIGPIPE is ignored from then on,
// unless the host has an action of its own for it: a write to a rank that is gone comes back as an error.
HEDDLE_API std::unique_ptr<Rendezvous> join(const RankPlace& place, GlooOptions options = {});

}  // namespace mesh
}  // namespace heddle
