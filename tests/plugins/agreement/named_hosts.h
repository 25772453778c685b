// Threads as ranks of named hosts.
#pragma once

#include <string>

#include "heddle/mesh/rendezvous.h"

namespace heddle::tests {

// Distributes the ranks of a world evenly over hosts "host0", "host1" and so on.
class NamedHosts : public WrappedRendezvous {
 public:
  NamedHosts(Rendezvous& inner, int ranks_per_host) : WrappedRendezvous(inner), each_(ranks_per_host) {}
  int local_rank() const override { return rank() % each_; }
  int local_world_size() const override { return each_; }
  std::string host_name(int rank) const override {
    return each_ == world_size() ? "" : "host" + std::to_string(rank / each_);
  }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    return inner().group(name, ranks);
  }

 private:
  const int each_;
};

}  // namespace heddle::tests
