// Meeting of the ranks of a run: rank 0 serves a store, each rank connects to it, and any rank may refuse the
// run.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/transport/rank_place.h"
#include "lib/transport/meeting/store_client.h"

namespace heddle::mesh {

// All ranks of a run, once they have met.
struct Met {
  c10::intrusive_ptr<StoreClient> store;
  std::vector<std::string> host_names;  // by rank; empty if all ranks are on one machine
  // The numeric address of this machine through which other machines reach it; a loopback address if all
  // ranks use one.
  std::string address;
};

// Begins to meet when it is made, on a thread of its own: a rank that prepares for minutes is known to the
// others meanwhile, and a rank that cannot start tells them at once.
class HEDDLE_API Meeting {
 public:
  // place.world_size is above 1; place.rank is -1 for a process that only refuses. Returns at once.
  explicit Meeting(const RankPlace& place);
  ~Meeting();  // waits for nothing
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Returns when every rank has called it. After 3 s a line of the log says for which ranks this one waits;
  // the first rank of each machine logs it. Throws the error of a rank that refused the run, with its rank
  // and host; Error{rank_lost} for a rank that ended; Error{timeout} naming the ranks that did not come in
  // `timeout` of running time. on_stopped: called in place of an error if a signal ended a rank.
  using OnStopped = std::function<void(int rank, int signal)>;
  Met join(std::chrono::milliseconds timeout, const Log& log, const OnStopped& on_stopped = {});

  // Sends an error to all ranks; each rank exits with it. Returns when they know it (rank 0) or rank 0 does,
  // at most after 10 s. Returns the error as this rank reports it: with its rank and host if the launcher
  // says that the ranks are on several machines.
  ErrorList refuse(const Error& error);
  // Tells the other ranks that a signal ends this one. Takes about a second at most.
  void stop(int signal);
  // Sets the functions that are called after join(): `gone` is called from another thread when the connection
  // of a rank ends, on rank 0 only; `stop` tells of a signal from then on.
  void follow(std::function<void(int rank)> gone, std::function<void(int signal)> stop);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heddle::mesh
