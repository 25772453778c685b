// Small all-reduces of many ranks: messages of a rank, and the bits of the sum.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "core/mesh/sums.h"
#include "lib/transport/gloo/wire_collectives.h"

namespace heddle::mesh {
namespace {

// Messages by sender, receiver and tag.
struct Post {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<char>>> messages;
};

struct Sent : Transfer {
  void wait() override {}
  void abort() override {}
};

struct Awaited : Transfer {
  Awaited(Post& post, std::tuple<int, int, int> key, void* to) : post(post), key(key), to(to) {}
  void wait() override {
    std::unique_lock lock(post.mutex);
    auto& line = post.messages[key];
    post.changed.wait(lock, [&] { return !line.empty(); });
    std::memcpy(to, line.front().data(), line.front().size());
    line.pop_front();
  }
  void abort() override {}

  Post& post;
  const std::tuple<int, int, int> key;
  void* const to;
};

struct PostWire : Wire {
  PostWire(Post& post, int rank) : post(post), rank(rank) {}
  std::unique_ptr<Transfer> send(const void* data, size_t count, int peer, int tag) override {
    ++sent;
    const char* begin = static_cast<const char*>(data);
    const std::lock_guard lock(post.mutex);
    post.messages[{rank, peer, tag}].emplace_back(begin, begin + count);
    post.changed.notify_all();
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Transfer> receive(void* data, size_t, int peer, int tag) override {
    ++received;
    return std::make_unique<Awaited>(post, std::tuple{peer, rank, tag}, data);
  }
  void abort() override {}

  Post& post;
  const int rank;
  int sent = 0, received = 0;
};

at::Tensor part_of(int rank, at::ScalarType type) {
  at::Tensor part = at::empty({7}, at::kFloat);
  for (int i = 0; i < 7; ++i) part.mutable_data_ptr<float>()[i] = 1.0f / static_cast<float>(rank * 7 + i + 3);
  return part.to(type);
}

class ManyRanks : public ::testing::TestWithParam<std::tuple<int, at::ScalarType, Reduce>> {};

TEST_P(ManyRanks, SumInRankOrderWithFewMessages) {
  const auto [size, type, reduce] = GetParam();
  std::vector<at::Tensor> parts;
  std::vector<const void*> sources;
  for (int rank = 0; rank < size; ++rank) parts.push_back(part_of(rank, type));
  for (const at::Tensor& part : parts) sources.push_back(part.const_data_ptr());
  const at::Tensor want = at::empty({7}, type);
  combine(want.mutable_data_ptr(), sources, 7, type, reduce);

  Post post;
  std::vector<int> messages(static_cast<size_t>(size));
  std::vector<at::Tensor> got(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank, type = type, reduce = reduce, size = size] {
      PostWire wire(post, rank);
      WireCollectives collectives(wire, rank, size);
      at::Tensor value = part_of(rank, type);
      collectives.run({.operation = Operation::all_reduce, .out = value, .in = value, .reduce = reduce});
      got[static_cast<size_t>(rank)] = value;
      messages[static_cast<size_t>(rank)] = wire.sent + wire.received;
    });
  for (std::thread& rank : ranks) rank.join();
  int log = 0;
  while ((1 << log) < size) ++log;
  for (size_t rank = 0; rank < got.size(); ++rank) {
    EXPECT_EQ(std::memcmp(got[rank].const_data_ptr(), want.const_data_ptr(), want.nbytes()), 0) << rank;
    EXPECT_LE(messages[rank], 2 * log) << rank;  // 24 for 4,096 ranks
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ManyRanks,
                         ::testing::Combine(::testing::Values(17, 32, 45, 128),
                                            ::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(Reduce::sum, Reduce::average, Reduce::max)));

}  // namespace
}  // namespace heddle::mesh
