// Tensors in shared memory: equal bits without copies, and memory that is freed.
#include "heddle/transport/shared_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "heddle/mesh/call.h"
#include "heddle/transport/join.h"
#include "heddle/transport/threads.h"
#include "lib/transport/shm/shm_extents.h"
#include "transport/children.h"
#include "transport/exercise.h"

namespace heddle {
namespace {

using tests::everyone;
using tests::expect_all_say;
using tests::Known;
using tests::run_ranks;

// Runs each call of an exercise on tensors in shared memory, on all ranks or on every second rank.
class Lending : public mesh::CheckedCommunicator {
 public:
  Lending(Communicator& inner, int every)
      : CheckedCommunicator(inner.name(), inner.rank(), inner.size()), inner_(inner), every_(every) {}

 protected:
  // Overwrites the shared tensors as soon as that is allowed.
  class Returning : public Work {
   public:
    Returning(std::unique_ptr<Work> work, at::Tensor from, at::Tensor to, at::Tensor in)
        : work_(std::move(work)), from_(std::move(from)), to_(std::move(to)), in_(std::move(in)) {}
    void wait() override {
      work_->wait();
      if (to_.defined()) to_.copy_(from_);
      for (const at::Tensor& lent : {from_, in_})
        if (lent.defined()) lent.fill_(7);
    }

   private:
    std::unique_ptr<Work> work_;
    at::Tensor from_, to_, in_;
  };

  at::Tensor lent(const at::Tensor& tensor) const {
    if (!tensor.defined() || rank() % every_ != 0) return tensor;
    return mesh::shared_empty(inner_, tensor.sizes(), tensor.options()).copy_(tensor);
  }

  std::unique_ptr<Work> post(mesh::Call call) override {
    const bool in_place = call.out.defined() && call.in.defined() && call.out.is_alias_of(call.in);
    at::Tensor out = lent(call.out), in = in_place ? out : lent(call.in);
    if (in_place && call.operation == mesh::Operation::all_gather)
      in = out.narrow(0, rank() * call.in.numel(), call.in.numel());
    if (in_place && call.operation == mesh::Operation::reduce_scatter)
      in = lent(call.in), out = in.narrow(0, rank() * call.out.numel(), call.out.numel());
    const bool lends = rank() % every_ == 0;
    auto work = tests::repeat(inner_, call, out, in);
    if (!lends) return work;
    return std::make_unique<Returning>(std::move(work), out, call.out, in);
  }

 private:
  Communicator& inner_;
  const int every_;
};

std::string exercised_shared(Rendezvous& rendezvous) {
  auto group = rendezvous.group("world", everyone(rendezvous));
  Lending all(*group, 1), some(*group, 2);
  return tests::bytes(tests::exercise(all)) + tests::bytes(tests::exercise(some));
}

const Known kExerciseShared("exercise_shared", exercised_shared);

class SharedMemory : public ::testing::TestWithParam<int> {};

TEST_P(SharedMemory, GivesTheSameBitsAsThreadsWithTensorsOfAllOrSomeRanks) {
  std::vector<std::string> wanted(GetParam());
  ThreadWorld::run(GetParam(),
                   [&](Rendezvous& rendezvous) { wanted[rendezvous.rank()] = exercised_shared(rendezvous); });
  const auto run = run_ranks("exercise_shared", GetParam());
  EXPECT_EQ(run.status, 0) << run.err;
  for (int rank = 0; rank < GetParam(); ++rank)
    EXPECT_TRUE(run.said.at(rank) == wanted[rank]) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Sizes, SharedMemory, ::testing::Values(2, 3));

// Returns the resident size of this rank's arena in MiB.
int64_t megabytes() {
  std::ifstream file("/proc/self/smaps");
  int64_t kilobytes = 0;
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find('-') < line.find(' ')) ours = line.find("/memfd:heddle") != std::string::npos;
    if (ours && line.starts_with("Rss:")) kilobytes += std::stoll(line.substr(4));
  }
  return kilobytes / 1024;
}

const Known kReturned("memory_returned", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("world", everyone(rendezvous));
  int64_t most = 0;
  for (int i = 0; i < 12; ++i) {
    auto whole = mesh::shared_empty(*group, {5 << 20}, at::kFloat).fill_(1);
    group->all_reduce(whole)->wait();
    most = std::max(most, megabytes());
  }
  rendezvous.barrier("all tensors have ended");  // this rank also maps the pages of the other one
  const bool held = most >= 20 && most < 60;
  const bool given_back = megabytes() < 16;
  return std::string(held ? "held while in use" : "not held") + (given_back ? ", given back" : ", kept");
});

TEST(SharedMemory, GivesItsPagesBackWhenTheTensorEnds) {
  expect_all_say(run_ranks("memory_returned", 2), 2, "held while in use, given back");
}

const Known kNoRoom("no_room", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("world", everyone(rendezvous));
  std::vector<at::Tensor> tensors;
  double sum = 0;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(mesh::shared_empty(*group, {1 << 20}, at::kFloat).fill_(1));
    group->all_reduce(tensors.back())->wait();
    sum += tensors.back().sum().item<double>();
  }
  return std::to_string(sum / (8 << 20)) + (megabytes() < 34 ? " within its room" : " beyond its room");
});

TEST(SharedMemory, IsOrdinaryMemoryWhereThereIsNoMoreRoom) {
  expect_all_say(run_ranks("no_room", 2, {.shared_memory = 16 << 20}), 2, "2.000000 within its room");
}

TEST(SharedMemory, IsOrdinaryMemoryOnOtherCommunicators) {
  ThreadWorld::run(2, [](Rendezvous& rendezvous) {
    auto group = rendezvous.group("world", everyone(rendezvous));
    auto tensor = mesh::shared_empty(*group, {3, 100000}, at::TensorOptions().dtype(at::kBFloat16));
    EXPECT_EQ(tensor.sizes(), (at::IntArrayRef{3, 100000}));
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(tensor.storage().resizable());
  });
}

TEST(Extents, JoinWhatIsFreeSideBySideAndGiveTheFirstThatFits) {
  mesh::Extents extents(100, 1100);
  const size_t a = *extents.take(300), b = *extents.take(300), c = *extents.take(400);
  EXPECT_EQ(extents.take(1), std::nullopt);
  EXPECT_EQ(extents.taken(), 1000u);
  extents.give(a, 300);
  extents.give(c, 400);
  EXPECT_EQ(extents.take(500), std::nullopt);
  extents.give(b, 300);
  EXPECT_EQ(*extents.take(1000), 100u);
}

}  // namespace
}  // namespace heddle
