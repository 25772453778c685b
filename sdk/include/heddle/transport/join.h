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
  // Called, in place of an error, once another rank was ended by a signal before its first step; a program
  // exits here with the signal's status. May be empty: then it is a lost rank.
  std::function<void(int rank, int signal)> on_stopped = {};
  // Bytes of shared memory that this rank may use for its groups; 0: all groups use Gloo.
  size_t shared_memory = std::numeric_limits<size_t>::max();
};

namespace mesh {

class Meeting;

// Joins the other ranks of the run; a world of one rank needs no network. A group whose ranks are all on this
// machine uses shared memory if each of them can; HEDDLE_SHM=0 in the environment of one disables it on its
// machine. When a rank dies, every wait here or in a communicator throws Error{rank_lost} naming it within 10
// s. Call leave() at the end of a healthy run and abandon() when this rank fails. Destroyed after its
// communicators; the destructor sends nothing. Throws Error{timeout} naming the ranks that did not come, or
// why rank 0 cannot be reached, and the error of a rank that refused the run. meeting: heddle's own program
// begins to meet earlier; null: here. SIGPIPE is ignored from then on, unless the host has a handler of
// its own: a write to a lost rank returns an error.
HEDDLE_API std::unique_ptr<Rendezvous> join(const RankPlace& place, GlooOptions options = {},
                                            std::shared_ptr<Meeting> meeting = nullptr);

}  // namespace mesh
}  // namespace heddle
