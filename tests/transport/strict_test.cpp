// The kits' strict communicator, which checks like a device: it accepts correct use and reports errors.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <vector>

#include "heddle/transport/threads.h"
#include "sdk/kits/runs/hostile.h"
#include "transport/exercise.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

// Returns the first fault of `body` on a group of threads, or "".
std::string strict_error(int size, const std::function<void(Communicator&)>& body) {
  const auto faults = std::make_shared<kits::WorkFaults>();
  try {
    ThreadWorld(size, std::chrono::seconds(30)).run([&](Rendezvous& host) {
      kits::LateRendezvous strict(host, faults);
      body(*strict.group("cp", first_ranks(size)));
    });
    faults->check();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

at::Tensor ones() {
  return at::full({5}, 1.0);
}

TEST(StrictCommunicator, PassesTheExercise) {
  std::mutex one_at_a_time;
  EXPECT_EQ(strict_error(3,
                         [&](Communicator& group) {
                           const std::vector<Outcome> outcomes = exercise(group, Tags::one_order);
                           const std::lock_guard lock(one_at_a_time);
                           for (const Outcome& outcome : outcomes)
                             EXPECT_TRUE(same(outcome.got, outcome.wanted)) << outcome.what;
                         }),
            "");
}

// The first transfer of a pair creates the NCCL communicator on both sides.
TEST(StrictCommunicator, NamesTheRanksOfARingThatAllReceiveFirst) {
  for (const int size : {2, 3, 4}) {
    const std::string fault = strict_error(size, [](Communicator& group) {
      const int next = (group.rank() + 1) % group.size(),
                last = (group.rank() + group.size() - 1) % group.size();
      const at::Tensor come = at::zeros({5}), mine = ones();
      const auto received = group.receive(come, last, 0), sent = group.send(mine, next, 0);
      received->wait();
      sent->wait();
    });
    EXPECT_THAT(fault, HasSubstr("a deadlock of first transfers: rank "));
    for (int rank = 0; rank < size; ++rank)
      EXPECT_THAT(fault, HasSubstr("rank " + std::to_string(rank) + " in its first receive from rank " +
                                   std::to_string((rank + size - 1) % size) + " on cp"));
  }
}

TEST(StrictCommunicator, NamesATransferThatIsChosenByItsTag) {
  EXPECT_THAT(strict_error(2,
                           [](Communicator& group) {
                             const bool sends = group.rank() == 0;
                             const at::Tensor a = ones(), b = ones();
                             const auto first = sends ? group.send(a, 1, 6) : group.receive(b, 0, 7);
                             const auto second = sends ? group.send(b, 1, 7) : group.receive(a, 0, 6);
                             first->wait();
                             second->wait();
                           }),
              HasSubstr("receive on cp with tag 7 is matched with the send with tag 6"));
}

TEST(StrictCommunicator, NamesWhatIsTouchedBeforeTheWait) {
  const auto gathered = [](auto touch) {
    return strict_error(2, [&](Communicator& group) {
      const at::Tensor out = at::zeros({10}), in = ones();
      const auto work = group.all_gather(out, in);
      touch(out, in);
      work->wait();
    });
  };
  using T = const at::Tensor&;
  EXPECT_EQ(gathered([](T, T) {}), "");
  EXPECT_THAT(gathered([](T, T in) { in.fill_(2); }),
              HasSubstr("the input of all_gather on cp was written before wait()"));
  EXPECT_THAT(gathered([](T out, T) { out.fill_(2); }),
              HasSubstr("the output of all_gather on cp was written before wait()"));
  EXPECT_THAT(gathered([](T out, T) { out.storage().unsafeGetStorageImpl()->set_nbytes(0); }),
              HasSubstr("the memory of all_gather on cp was freed before wait()"));
  EXPECT_EQ(gathered([](T out, T) { EXPECT_TRUE(out.isnan().all().item<bool>()); }), "");
}

// Poisoned integers make wrong indices fail.
TEST(StrictCommunicator, PoisonsWholeNumbers) {
  EXPECT_EQ(strict_error(2,
                         [](Communicator& group) {
                           const at::Tensor numbers = at::full({3}, 7, at::kLong);
                           const auto work = group.broadcast(numbers, 0);
                           if (group.rank() != 0) {
                             EXPECT_LT(numbers.max().item<int64_t>(), -1000000);
                           }
                           work->wait();
                           EXPECT_EQ(numbers.max().item<int64_t>(), 7);
                         }),
            "");
}

}  // namespace
}  // namespace heddle::tests
