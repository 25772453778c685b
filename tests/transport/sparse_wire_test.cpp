// Large groups over Gloo: few connections along a tree, and a full mesh once it is needed.
#include "lib/transport/gloo/sparse_wire.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <barrier>
#include <set>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "lib/transport/gloo/gloo_wire.h"
#include "lib/transport/gloo/wire_collectives.h"
#include "tests/main/with_all.h"

namespace heddle::mesh {
namespace {

HEDDLE_WITH_ALL("SparseWire.*");

constexpr int kWired = 20;

std::vector<int> all_ranks() {
  std::vector<int> ranks(kWired);
  for (int rank = 0; rank < kWired; ++rank) ranks[rank] = rank;
  return ranks;
}

// Ranks as threads, each with its own connections to one store.
struct World {
  World() {
    c10d::TCPStoreOptions options;
    options.isServer = true;
    options.port = 0;  // any free port
    options.waitWorkers = false;
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  // Returns a wire. A destroyed wire may still connect in a thread, so its functions own their data.
  std::unique_ptr<SparseWire> wire_of(int rank) {
    const auto pair = [device = device, store = store, rank](int peer) {
      const std::vector<int> both = {std::min(rank, peer), std::max(rank, peer)};
      const std::string name = "pair" + std::to_string(both[0]) + "-" + std::to_string(both[1]);
      return connect_gloo(store->clone(), *device, {name, both, rank == both[0] ? 0 : 1, kLimit});
    };
    const auto mesh = [device = device, store = store, rank] {
      const std::vector<int> ranks = all_ranks();
      return connect_gloo(store->clone(), *device, {"mesh", ranks, rank, kLimit});
    };
    return std::make_unique<SparseWire>(rank, pair, mesh);
  }

  static constexpr std::chrono::minutes kLimit{2};
  const std::shared_ptr<GlooDevice> device = open_gloo_device("lo", "");
  c10::intrusive_ptr<c10d::Store> store;
};

int64_t sum_of(WireCollectives& collectives, int64_t mine) {
  const at::Tensor value = at::full({1}, mine, at::kLong);
  collectives.run({.operation = Operation::all_reduce, .out = value, .in = value});
  return value.const_data_ptr<int64_t>()[0];
}

TEST(SparseWire, ConnectsAlongTheTreeAndToAllWhenAllExchange) {
  World world;
  std::barrier together(kWired);
  std::vector<size_t> few(kWired), more(kWired), again(kWired);
  std::vector<std::vector<int64_t>> sums(kWired), gathered(kWired), exchanged(kWired);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWired; ++rank)
    ranks.emplace_back([&, rank] {
      const std::unique_ptr<SparseWire> wire = world.wire_of(rank);
      WireCollectives collectives(*wire, rank, kWired);
      for (int round = 0; round < 3; ++round) sums[rank].push_back(sum_of(collectives, rank + round));
      few[rank] = wire->connections();
      // Sends to the next rank and receives from the previous one, posted before both sides are connected.
      int64_t given = 100 + rank, got = 0;
      const auto coming = wire->receive(&got, sizeof got, (rank + kWired - 1) % kWired, direct_tag(5));
      const auto going = wire->send(&given, sizeof given, (rank + 1) % kWired, direct_tag(5));
      coming->wait();
      going->wait();
      sums[rank].push_back(got);
      const at::Tensor whole = at::zeros({kWired}, at::kLong), mine = at::full({1}, rank * rank, at::kLong);
      collectives.run({.operation = Operation::all_gather, .out = whole, .in = mine});
      gathered[rank].assign(whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + kWired);
      more[rank] = wire->connections();
      // Then every rank exchanges rows with every rank.
      const std::vector<int64_t> rows(kWired, 1);
      const at::Tensor to = at::full({kWired}, rank, at::kLong), from = at::zeros({kWired}, at::kLong);
      collectives.run(
          {.operation = Operation::all_to_all, .out = from, .in = to, .out_rows = rows, .in_rows = rows});
      exchanged[rank].assign(from.const_data_ptr<int64_t>(), from.const_data_ptr<int64_t>() + kWired);
      sums[rank].push_back(sum_of(collectives, 1));
      again[rank] = wire->connections();
      together.arrive_and_wait();
    });
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < kWired; ++rank) {
    EXPECT_LE(few[rank], 5u) << rank;  // of 19 peers
    EXPECT_LE(more[rank], 14u) << rank;
    EXPECT_EQ(again[rank], more[rank]) << rank;  // excludes the mesh of open_all()
    EXPECT_EQ(sums[rank], (std::vector<int64_t>{190, 210, 230, 100 + (rank + kWired - 1) % kWired, kWired}));
    for (int other = 0; other < kWired; ++other) {
      EXPECT_EQ(gathered[rank][other], other * other);
      EXPECT_EQ(exchanged[rank][other], other);
    }
  }
}

// abort() ends the wait for a peer that never connects. The destructors do not wait.
TEST(SparseWire, AbortsWaitsForAConnection) {
  World world;
  const std::unique_ptr<SparseWire> wire = world.wire_of(0);
  int64_t got = 0;
  const auto transfer = wire->receive(&got, sizeof got, 7, direct_tag(1));
  std::thread aborts([&] { wire->abort(); });
  EXPECT_THROW(transfer->wait(), std::runtime_error);
  aborts.join();
  EXPECT_THROW(wire->send(&got, sizeof got, 7, direct_tag(1)), std::runtime_error);
}

// A wire that discards sends and receives zeros.
struct CountingWire : Wire {
  struct Done : Transfer {
    void wait() override {}
    void abort() override {}
  };
  std::unique_ptr<Transfer> send(const void*, size_t, int peer, int) override { return count(peer); }
  std::unique_ptr<Transfer> receive(void*, size_t, int peer, int) override { return count(peer); }
  void abort() override {}
  void open_all() override { opened = true; }
  std::unique_ptr<Transfer> count(int peer) {
    ++messages;
    peers.insert(peer);
    return std::make_unique<Done>();
  }

  int messages = 0;
  std::set<int> peers;
  bool opened = false;
};

// Host traffic of a rank of 4,096 besides NCCL: a communicator id and two small sums per step.
TEST(SparseWire, HasFewConnectionsForThousandsOfRanks) {
  constexpr int kWorld = 4096;
  for (const int rank : {0, 1, 2048, 2049, 4095}) {
    CountingWire wire;
    WireCollectives collectives(wire, rank, kWorld);
    const at::Tensor id = at::zeros({128}, at::kByte);
    collectives.run({.operation = Operation::broadcast, .out = id, .in = id});
    wire.messages = 0;
    for (int sum = 0; sum < 2; ++sum) sum_of(collectives, 1);
    EXPECT_LE(wire.messages, 64) << rank;
    EXPECT_LE(wire.peers.size(), 12u) << rank;
    EXPECT_FALSE(wire.opened) << rank;
  }
}

// Shards over Gloo: an all-gather, a reduce-scatter and a large all-reduce.
TEST(SparseWire, MovesBlocksInFewMessagesForThousandsOfRanks) {
  constexpr int kWorld = 4096;
  for (const int rank : {0, 1, 2049, 4095}) {
    CountingWire wire;
    WireCollectives collectives(wire, rank, kWorld);
    const at::Tensor whole = at::zeros({kWorld}), part = at::zeros({1}), large = at::zeros({2 * kWorld});
    collectives.run({.operation = Operation::all_gather, .out = whole, .in = part});
    EXPECT_EQ(wire.messages, 24) << rank;
    collectives.run({.operation = Operation::reduce_scatter, .out = part, .in = whole});
    EXPECT_EQ(wire.messages, 48) << rank;
    collectives.run({.operation = Operation::all_reduce, .out = large, .in = large});
    EXPECT_EQ(wire.messages, 96) << rank;
    EXPECT_LE(wire.peers.size(), 24u) << rank;
    EXPECT_FALSE(wire.opened) << rank;
  }
}

}  // namespace
}  // namespace heddle::mesh
