// Ranks as processes: they connect through a TCPStore, communicate through shared memory within a machine and
// Gloo between machines, and monitor each other.
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

// Options of mesh::join().
struct GlooOptions {
  // Timeout of a collective and of joining (dist_env.timeout_minutes).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // A host is lost if no rank on it sent a heartbeat for this time (dist_env.heartbeat_seconds).
  std::chrono::milliseconds heartbeat = std::chrono::minutes(1);
  Log log = {};
  // Called once, from another thread, if a rank was lost and this rank has not noticed within 2 s because it
  // computes. A program exits here. Not called if a collective has thrown the error. May be empty.
  std::function<void(const Error&)> on_lost = {};
  // Called instead of an error if another rank was ended by a signal before its first step. A program exits
  // here with the signal's status. If empty, the rank counts as lost.
  std::function<void(int rank, int signal)> on_stopped = {};
  // Bytes of shared memory that this rank may use for its groups. 0: all groups use Gloo.
  size_t shared_memory = std::numeric_limits<size_t>::max();
};

namespace mesh {

class Meeting;

// Joins the other ranks of the run. A world of one rank needs no network. A group whose ranks are all on this
// machine uses shared memory if every rank can; HEDDLE_SHM=0 in the environment of any rank disables it on
// its machine. If a rank dies, every wait here or in a communicator throws Error{rank_lost} naming it within
// 10 s. Call leave() at the end of a healthy run and abandon() if this rank fails. Destroyed after its
// communicators; the destructor sends nothing.
// Throws Error{timeout} with the missing ranks or the reason why rank 0 cannot be reached, and the error of a
// rank that refused the run. meeting: started earlier by heddle's own program; null: join() starts it.
// Ignores SIGPIPE from then on unless the host has a handler, so that a write to a lost rank returns an
// error.
HEDDLE_API std::unique_ptr<Rendezvous> join(const RankPlace& place, GlooOptions options = {},
                                            std::shared_ptr<Meeting> meeting = nullptr);

}  // namespace mesh
}  // namespace heddle
