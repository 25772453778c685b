// The wire of a large group: two ranks connect when they first exchange a message.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "heddle/base/export.h"
#include "lib/transport/gloo/wire.h"

namespace heddle::mesh {

struct Edge;  // the connection to one rank

// Collectives along a tree connect a rank with log2 of the group; a collective between any two ranks opens
// the mesh of all connections first (open_all), which then carries every collective. Direct messages (even
// tags) use connections of two ranks always, so that both sides choose alike. Posting never blocks: a
// connection is made by a thread of its own, and messages wait for it.
class HEDDLE_API SparseWire : public Wire {
 public:
  // `pair` and `mesh` block. pair: the wire between this rank and a peer, with the lower rank as 0, the other
  // as 1.
  SparseWire(int rank, std::function<std::unique_ptr<Wire>(int peer)> pair,
             std::function<std::unique_ptr<Wire>()> mesh);
  ~SparseWire() override;  // waits for nothing
  std::unique_ptr<Transfer> send(const void* data, size_t count, int peer, int tag) override;
  std::unique_ptr<Transfer> receive(void* data, size_t count, int peer, int tag) override;
  void open_all() override;
  void abort() override;

  size_t connections() const;  // to single ranks

 private:
  using Start = std::function<std::unique_ptr<Transfer>(Wire& wire, int peer)>;
  std::unique_ptr<Transfer> post(int peer, int tag, Start start);
  std::shared_ptr<Edge> edge_to(int peer);

  const int rank_;
  const std::function<std::unique_ptr<Wire>(int)> pair_;
  const std::function<std::unique_ptr<Wire>()> connect_mesh_;
  mutable std::mutex mutex_;
  std::shared_ptr<Wire> mesh_;  // from open_all() on
  std::map<int, std::shared_ptr<Edge>> edges_;
};

}  // namespace heddle::mesh
