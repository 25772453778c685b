// Background work of a rank: errors, copies of tensors, and exchange of texts.
#include "lib/run/checkpointing/background.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "heddle/transport/threads.h"
#include "lib/run/checkpointing/copies.h"

namespace heddle {
namespace {

TEST(Background, ReportsAnErrorOnce) {
  Background background;
  background.start([] { throw std::runtime_error("disk"); });
  while (!background.has_failed()) std::this_thread::yield();
  EXPECT_THROW(background.wait(), std::runtime_error);
  EXPECT_FALSE(background.has_failed());
  EXPECT_NO_THROW(background.wait());
}

TEST(Background, RunsTasksInOrder) {
  Background background;
  std::string done;
  for (const char* piece : {"a", "b", "c"}) background.start([&, piece] { done += piece; });
  background.wait();
  EXPECT_EQ(done, "abc");
  background.start([] { throw std::runtime_error("first"); });
  EXPECT_THROW(background.start([&] { done += "d"; }), std::runtime_error);
  EXPECT_EQ(done, "abc");
}

TEST(Copies, KeepTheirValuesAndMemory) {
  Copies copies;
  std::vector<checkpoint::Part> parts{{"a", at::arange(6).view({2, 3}).t(), {3, 2}, {0, 0}},
                                      {"b", at::full({}, 2.0, at::kBFloat16), {}, {}}};
  auto first = copies.of(parts);
  EXPECT_TRUE(at::equal(first[0].tensor, parts[0].tensor));
  parts[0].tensor.zero_();
  EXPECT_EQ(first[0].tensor.sum().item<int64_t>(), 15);
  const auto second = copies.of(parts);
  EXPECT_EQ(second[0].tensor.const_data_ptr(), first[0].tensor.const_data_ptr());
  EXPECT_EQ(second[0].tensor.sum().item<int64_t>(), 0);
  EXPECT_EQ(second[1].tensor.item<double>(), 2.0);
}

// Each rank's two threads exchange their own keys, in an order that differs between ranks.
TEST(Background, ExchangesTextsConcurrentlyWithTheRanksThread) {
  ThreadWorld::run(3, [](Rendezvous& rendezvous) {
    const std::vector<std::string> all{"0", "1", "2"};
    const auto talk = [&](const std::string& key) {
      for (int i = 0; i < 50; ++i)
        EXPECT_EQ(rendezvous.exchange(key, std::to_string(rendezvous.rank())), all);
    };
    Background background;
    background.start([&] { talk("save"); });
    talk("step");
    background.wait();
  });
}

TEST(Background, IsReleasedWhenAnotherRankFails) {
  std::string error;
  EXPECT_THROW(ThreadWorld::run(2,
                                [&](Rendezvous& rendezvous) {
                                  if (rendezvous.rank() == 1) throw std::runtime_error("gone");
                                  Background background;
                                  background.start([&] { rendezvous.barrier("save"); });
                                  try {
                                    background.wait();
                                  } catch (const Error& lost) {
                                    error = lost.message();
                                    throw;
                                  }
                                }),
               std::runtime_error);
  EXPECT_NE(error.find("failed: gone"), std::string::npos) << error;
}

}  // namespace
}  // namespace heddle
