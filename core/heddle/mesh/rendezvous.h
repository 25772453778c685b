// Where the ranks of a run meet: who this rank is, a place for short texts, and the making of groups.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/mesh/communicator.h"

namespace heddle {

class HEDDLE_API Rendezvous {
 public:
  virtual ~Rendezvous();
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;  // ranks on this machine
  virtual const Log& log() const = 0;

  // Every rank gives a text and gets all of them in rank order; a meeting of all ranks, each `key` used once.
  virtual std::vector<std::string> exchange(const std::string& key, const std::string& text) = 0;

  // Collectives among `ranks` (global, ascending; this rank is one of them). Called by exactly those ranks,
  // in one order. `name` says which axis it is, in messages.
  virtual std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) = 0;

  // The end of a healthy run, called by every rank: from here on its silence is no death. Rank 0 waits for
  // the others, as it serves the place where they meet.
  virtual void leave() {}
  // This rank failed: the others get Error{rank_lost} with `why` at once instead of after its silence.
  virtual void abandon(const std::string& why) {}
};

}  // namespace heddle
