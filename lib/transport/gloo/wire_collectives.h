// The collectives over a wire: direct exchange and a sum in rank order, on one thread of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/call.h"
#include "lib/transport/gloo/wire.h"

namespace heddle::mesh {

constexpr int kFewRanks = 16;  // up to which all ranks of a group are connected, and send their parts to all

// Performs one call after the other, in the order in which all ranks of the group post them; blocks. Keeps
// its staging memory. n bytes on `size` ranks: all_gather and reduce_scatter send (size - 1) / size of the
// whole tensor from each rank, without a copy on the sending side up to 16 ranks, and above in log2(size)
// messages (gather_blocks, reduce_blocks); all_reduce is the two of them, or, when it is small, one exchange,
// and a binomial tree above 16 ranks; broadcast is a binomial tree. Sums are in rank order, but for
// those of reduce_blocks.
class HEDDLE_API WireCollectives {
 public:
  WireCollectives(Wire& wire, int rank, int size) : wire_(wire), rank_(rank), size_(size) {}
  void run(const Call& call);

 private:
  using Transfers = std::vector<std::unique_ptr<Transfer>>;

  void all_gather(const Call& call);
  void reduce_scatter(const Call& call);
  void all_reduce(const Call& call);
  void reduce_small(char* data, size_t bytes, const Call& call);
  void reduce_by_tree(char* data, size_t bytes, const Call& call);
  // Collectives of more than kFewRanks ranks (wire_doubling.cpp).
  void all_gather_by_doubling(const Call& call);
  void reduce_scatter_by_halving(const Call& call);
  void all_reduce_by_halves(const Call& call);
  void gather_blocks(char* blocks, size_t bytes);
  void reduce_blocks(char* blocks, int64_t count, at::ScalarType type, Reduce reduce);
  void spread(char* data, size_t bytes, int root);
  void all_to_all(const Call& call);
  void broadcast(const Call& call);

  // An empty message is not sent: the other side knows its size.
  void send(Transfers& transfers, const char* data, size_t bytes, int peer);
  void receive(Transfers& transfers, char* data, size_t bytes, int peer);
  static void wait(const Transfers& transfers);
  char* staging(size_t bytes);
  int nth_peer(int step) const { return (rank_ + step) % size_; }
  // staged holds a part of every other rank; the sum of all parts goes to out.
  void sum(char* out, const char* mine, const char* staged, size_t bytes, int64_t count, const Call& call);

  Wire& wire_;
  const int rank_, size_;
  int64_t number_ = 0;  // of the exchange, the same on all ranks: it makes the tag
  std::vector<char> staging_;
  std::vector<const void*> parts_;
};

// The tag of a caller's receive() or send(); odd tags belong to the collectives.
inline int direct_tag(int tag) {
  return 2 * tag;
}

}  // namespace heddle::mesh
