// Collectives of many ranks: number of messages per rank, and results.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
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
    EXPECT_LE(messages[rank], 2 * log) << rank;  // 24 with 4,096 ranks
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ManyRanks,
                         ::testing::Combine(::testing::Values(17, 32, 45, 128),
                                            ::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(Reduce::sum, Reduce::average, Reduce::max)));

// Runs `body` on every rank. Returns the largest number of messages that one rank sent and received.
int most_messages(int size, const std::function<void(int rank, WireCollectives& collectives)>& body) {
  Post post;
  std::vector<int> messages(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      PostWire wire(post, rank);
      WireCollectives collectives(wire, rank, size);
      body(rank, collectives);
      messages[static_cast<size_t>(rank)] = wire.sent + wire.received;
    });
  for (std::thread& rank : ranks) rank.join();
  return *std::max_element(messages.begin(), messages.end());
}

// Small integers, whose sums do not depend on the order of addition.
at::Tensor numbers(int rank, int64_t count, at::ScalarType type) {
  at::Tensor out = at::empty({count}, at::kFloat);
  for (int64_t i = 0; i < count; ++i)
    out.mutable_data_ptr<float>()[i] = static_cast<float>((rank * 5 + i * 3) % 7 - 3);
  return out.to(type);
}

using Collective = std::tuple<int, at::ScalarType>;

class BlocksOfManyRanks : public ::testing::TestWithParam<Collective> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
  int rounds() const {
    int log = 0;
    while ((1 << log) < size()) ++log;
    return log;
  }
  // Returns the sums over all ranks.
  std::vector<float> sums(int64_t count, Reduce reduce) const {
    std::vector<float> out(static_cast<size_t>(count), reduce == Reduce::max ? -100.0f : 0.0f);
    for (int rank = 0; rank < size(); ++rank) {
      const at::Tensor part = numbers(rank, count, at::kFloat);
      for (int64_t i = 0; i < count; ++i) {
        const float value = part.const_data_ptr<float>()[i];
        float& to = out[static_cast<size_t>(i)];
        to = reduce == Reduce::max ? std::max(to, value) : to + value;
      }
    }
    if (reduce == Reduce::average)
      for (float& value : out) {
        value /= static_cast<float>(size());
        if (at::isIntegralType(type(), false)) value = std::trunc(value);
      }
    return out;
  }
  void expect(const at::Tensor& got, const std::vector<float>& want, int rank) const {
    const at::Tensor values = got.to(at::kFloat);
    size_t wrong = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const float rounded = type() == at::kBFloat16 ? static_cast<float>(c10::BFloat16(want[i])) : want[i];
      wrong += values.const_data_ptr<float>()[i] != rounded;
    }
    EXPECT_EQ(wrong, 0u) << "rank " << rank;
  }
};

TEST_P(BlocksOfManyRanks, AreGathered) {
  const int most = most_messages(size(), [&](int rank, WireCollectives& collectives) {
    const at::Tensor in = numbers(rank, 3, type()), out = at::empty({3 * size()}, type());
    collectives.run({.operation = Operation::all_gather, .out = out, .in = in});
    for (int other = 0; other < size(); ++other)
      EXPECT_EQ(std::memcmp(static_cast<const char*>(out.const_data_ptr()) + other * in.nbytes(),
                            numbers(other, 3, type()).const_data_ptr(), in.nbytes()),
                0)
          << rank << " of " << other;
  });
  EXPECT_LE(most, 2 * rounds());
}

TEST_P(BlocksOfManyRanks, AreReduced) {
  for (const Reduce reduce : {Reduce::sum, Reduce::average, Reduce::max}) {
    const int64_t whole = 3 * size();
    const std::vector<float> all = sums(whole, reduce);
    const int most = most_messages(size(), [&](int rank, WireCollectives& collectives) {
      const std::vector<float> want(all.begin() + 3 * rank, all.begin() + 3 * rank + 3);
      const at::Tensor in = numbers(rank, whole, type()), out = at::empty({3}, type());
      collectives.run({.operation = Operation::reduce_scatter, .out = out, .in = in, .reduce = reduce});
      expect(out, want, rank);
      // Runs twice, in place, to reuse the staging memory and the tags.
      const at::Tensor own = in.slice(0, 3 * rank, 3 * rank + 3);
      collectives.run({.operation = Operation::reduce_scatter, .out = own, .in = in, .reduce = reduce});
      expect(own, want, rank);
    });
    EXPECT_LE(most, 4 * rounds());
  }
}

// Sizes above 16 KiB that the ranks do not divide, so that last blocks are short.
TEST_P(BlocksOfManyRanks, AreReducedAndGathered) {
  for (const Reduce reduce : {Reduce::sum, Reduce::average, Reduce::max})
    for (const int64_t count : {int64_t{8209}, int64_t{8193 + size()}}) {
      const std::vector<float> want = sums(count, reduce);
      const int most = most_messages(size(), [&](int rank, WireCollectives& collectives) {
        const at::Tensor value = numbers(rank, count, type());
        collectives.run({.operation = Operation::all_reduce, .out = value, .in = value, .reduce = reduce});
        expect(value, want, rank);
      });
      EXPECT_LE(most, 4 * rounds());  // 48 with 4,096 ranks
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BlocksOfManyRanks,
                         ::testing::Combine(::testing::Values(17, 24, 32),
                                            ::testing::Values(at::kFloat, at::kBFloat16, at::kInt)));

}  // namespace
}  // namespace heddle::mesh
