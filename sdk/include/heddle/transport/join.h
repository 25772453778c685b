// Ranks as processes: they meet in a TCPStore, move bytes through shared memory within a machine and with
// Gloo between machines, and watch each other.
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
  // How long a rank waits for the others in one collective, and for all to join (dist_env.timeout_minutes).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // A host is lost if no rank on it was heard for this time (dist_env.heartbeat_seconds).
  std::chrono::milliseconds heartbeat = std::chrono::minutes(1);
  Log log = {};
  // Called once, from another thread, if a rank was lost and this rank has not noticed within 2 s because it
  // computes; a program exits here. Not called if a collective has thrown the error. May be empty.
  std::function<void(const Error&)> on_lost = {};
  // Called at once, from another thread, if a signal stopped another rank before its first step; a program
  // exits here with the status of the signal. Empty: an ordinary lost rank.
  std::function<void(int rank, int signal)> on_stopped = {};
  // Bytes of shared memory that this rank may use for its groups; 0: all groups use Gloo.
  size_t shared_memory = std::numeric_limits<size_t>::max();
};

namespace mesh {

// Joins the other ranks of the run; a world of one rank needs no network. A group whose ranks are all on this
// machine uses shared memory if each of them can; HEDDLE_SHM=0 in the environment of one disables it on its
// machine. When a rank dies, every wait here or in a communicator throws Error{rank_lost} naming it within 10
// s. Call leave() at the end of a healthy run and abandon() when this rank fails. Destroyed after its
// communicators; the destructor sends nothing. Throws Error{timeout} naming the ranks that did not come, or
// saying that the store cannot be reached. SIGPIPE is ignored from then on, unless the host has a handler of
// its own: a write to a lost rank returns an error.
HEDDLE_API std::unique_ptr<Rendezvous> join(const RankPlace& place, GlooOptions options = {});

}  // namespace mesh
}  // namespace heddle
