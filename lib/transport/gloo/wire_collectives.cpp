// Collectives from sends and receives.
#include "lib/transport/gloo/wire_collectives.h"

#include <algorithm>
#include <cstring>

#include "core/mesh/sums.h"

namespace heddle::mesh {
namespace {

constexpr size_t kSmallBytes = 16 * 1024;  // bytes below which an all_reduce is one exchange

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}
const char* const_bytes_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

}  // namespace

void WireCollectives::run(const Call& call) {
  if (size_ > kFewRanks && call.operation == Operation::all_to_all) wire_.open_all();
  switch (call.operation) {
    case Operation::all_gather:
      return size_ <= kFewRanks ? all_gather(call) : all_gather_by_doubling(call);
    case Operation::reduce_scatter:
      return size_ <= kFewRanks ? reduce_scatter(call) : reduce_scatter_by_halving(call);
    case Operation::all_reduce:
      return all_reduce(call);
    case Operation::all_to_all:
      return all_to_all(call);
    default:
      return broadcast(call);
  }
}

void WireCollectives::send(Transfers& transfers, const char* data, size_t bytes, int peer) {
  const int tag = static_cast<int>(number_ % (1 << 29)) * 2 + 1;
  if (bytes > 0) transfers.push_back(wire_.send(data, bytes, peer, tag));
}

void WireCollectives::receive(Transfers& transfers, char* data, size_t bytes, int peer) {
  const int tag = static_cast<int>(number_ % (1 << 29)) * 2 + 1;
  if (bytes > 0) transfers.push_back(wire_.receive(data, bytes, peer, tag));
}

void WireCollectives::wait(const Transfers& transfers) {
  for (const auto& transfer : transfers) transfer->wait();
}

char* WireCollectives::staging(size_t bytes) {
  if (staging_.size() < bytes) staging_.resize(bytes);
  return staging_.data();
}

void WireCollectives::sum(char* out, const char* mine, const char* staged, size_t bytes, int64_t count,
                          const Call& call) {
  parts_.resize(size_);
  for (int rank = 0; rank < size_; ++rank) {
    const int place = rank < rank_ ? rank : rank - 1;  // this rank's own part is not staged
    parts_[rank] = rank == rank_ ? mine : staged + place * bytes;
  }
  combine(out, parts_, count, call.in.scalar_type(), call.reduce);
}

void WireCollectives::all_gather(const Call& call) {
  ++number_;
  const size_t bytes = call.in.nbytes();
  const char* in = const_bytes_of(call.in);
  char* out = bytes_of(call.out);
  Transfers transfers;
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    receive(transfers, out + peer * bytes, bytes, peer);
  }
  for (int step = 1; step < size_; ++step) send(transfers, in, bytes, nth_peer(step));
  if (bytes > 0 && out + rank_ * bytes != in) std::memcpy(out + rank_ * bytes, in, bytes);
  wait(transfers);
}

void WireCollectives::reduce_scatter(const Call& call) {
  ++number_;
  const size_t bytes = call.out.nbytes();
  const char* in = const_bytes_of(call.in);
  char* staged = staging(bytes * (size_ - 1));
  Transfers transfers;
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    receive(transfers, staged + (peer < rank_ ? peer : peer - 1) * bytes, bytes, peer);
  }
  for (int step = 1; step < size_; ++step)
    send(transfers, in + nth_peer(step) * bytes, bytes, nth_peer(step));
  wait(transfers);
  sum(bytes_of(call.out), in + rank_ * bytes, staged, bytes, call.out.numel(), call);
}

void WireCollectives::reduce_small(char* data, size_t bytes, const Call& call) {
  char* staged = staging(bytes * (size_ - 1));
  Transfers transfers;
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    receive(transfers, staged + (peer < rank_ ? peer : peer - 1) * bytes, bytes, peer);
  }
  for (int step = 1; step < size_; ++step) send(transfers, data, bytes, nth_peer(step));
  wait(transfers);  // also the sends: the sum overwrites their source
  sum(data, data, staged, bytes, call.in.numel(), call);
}

// A binomial tree gathers all parts on the group's first rank, which adds them in rank order and sends the
// result down the same tree: log2(size) messages of a rank in each direction.
void WireCollectives::reduce_by_tree(char* data, size_t bytes, const Call& call) {
  int low = 1;  // rank r gathers those below r plus its lowest bit
  while (low < size_ && (rank_ & low) == 0) low <<= 1;
  const int gathered = std::min(low, size_ - rank_);
  char* staged = staging(bytes * gathered);
  std::memcpy(staged, data, bytes);
  Transfers transfers;
  for (int bit = 1; bit < gathered; bit <<= 1)
    receive(transfers, staged + bit * bytes, std::min(bit, gathered - bit) * bytes, rank_ + bit);
  wait(transfers);
  transfers.clear();
  if (rank_ != 0) {
    send(transfers, staged, gathered * bytes, rank_ - low);
    wait(transfers);
  } else {
    parts_.resize(size_);
    for (int rank = 0; rank < size_; ++rank) parts_[rank] = staged + rank * bytes;
    combine(data, parts_, call.in.numel(), call.in.scalar_type(), call.reduce);
  }
  spread(data, bytes, 0);
}

void WireCollectives::all_reduce(const Call& call) {
  ++number_;
  char* data = bytes_of(call.out);
  const size_t bytes = call.in.nbytes();
  if (bytes <= kSmallBytes)
    return size_ <= kFewRanks ? reduce_small(data, bytes, call) : reduce_by_tree(data, bytes, call);
  if (size_ > kFewRanks) return all_reduce_by_halves(call);
  const size_t element = call.in.element_size();
  const auto start = [&](int rank) { return static_cast<size_t>(call.in.numel() * rank / size_); };
  const auto length = [&](int rank) { return start(rank + 1) - start(rank); };
  char* staged = staging(length(rank_) * element * (size_ - 1));
  Transfers transfers;
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    receive(transfers, staged + (peer < rank_ ? peer : peer - 1) * length(rank_) * element,
            length(rank_) * element, peer);
  }
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    send(transfers, data + start(peer) * element, length(peer) * element, peer);
  }
  wait(transfers);
  char* mine = data + start(rank_) * element;
  sum(mine, mine, staged, length(rank_) * element, static_cast<int64_t>(length(rank_)), call);
  ++number_;
  transfers.clear();
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    receive(transfers, data + start(peer) * element, length(peer) * element, peer);
  }
  for (int step = 1; step < size_; ++step) send(transfers, mine, length(rank_) * element, nth_peer(step));
  wait(transfers);
}

void WireCollectives::all_to_all(const Call& call) {
  ++number_;
  const auto row_bytes = [](const at::Tensor& tensor) {
    return static_cast<size_t>(c10::multiply_integers(tensor.sizes().slice(1))) * tensor.element_size();
  };
  const size_t in_row = row_bytes(call.in), out_row = row_bytes(call.out);
  std::vector<size_t> in_start(size_ + 1, 0), out_start(size_ + 1, 0);
  for (int rank = 0; rank < size_; ++rank) {
    in_start[rank + 1] = in_start[rank] + call.in_rows[rank] * in_row;
    out_start[rank + 1] = out_start[rank] + call.out_rows[rank] * out_row;
  }
  const char* in = const_bytes_of(call.in);
  char* out = bytes_of(call.out);
  Transfers transfers;
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    receive(transfers, out + out_start[peer], out_start[peer + 1] - out_start[peer], peer);
  }
  for (int step = 1; step < size_; ++step) {
    const int peer = nth_peer(step);
    send(transfers, in + in_start[peer], in_start[peer + 1] - in_start[peer], peer);
  }
  const size_t own = in_start[rank_ + 1] - in_start[rank_];
  if (own > 0) std::memcpy(out + out_start[rank_], in + in_start[rank_], own);
  wait(transfers);
}

void WireCollectives::broadcast(const Call& call) {
  spread(bytes_of(call.out), call.out.nbytes(), call.peer);
}

// Ranks are counted from the root; rank v receives from v without its lowest bit, and sends to v plus each
// lower power of two.
void WireCollectives::spread(char* data, size_t bytes, int root) {
  ++number_;
  const int place = (rank_ - root + size_) % size_;
  int bit = 1;
  while (bit < size_ && (place & bit) == 0) bit <<= 1;
  Transfers transfers;
  if (place != 0) receive(transfers, data, bytes, (place - bit + root) % size_);
  wait(transfers);
  transfers.clear();
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (place + bit < size_) send(transfers, data, bytes, (place + bit + root) % size_);
  }
  wait(transfers);
}

}  // namespace heddle::mesh
