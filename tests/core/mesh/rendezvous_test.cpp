// Rendezvous: rank 0 answers with one text for all or one per rank, and its exceptions are thrown on every
// rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "heddle/mesh/call.h"
#include "heddle/mesh/dry.h"
#include "heddle/transport/threads.h"
#include "lib/transport/gloo/store_rendezvous.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using Texts = std::span<const std::string>;

std::vector<std::string> doubled(Texts texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(text + text);
  return out;
}

TEST(Rendezvous, ReturnsOneAnswerPerRankOrOneForAll) {
  ThreadWorld::run(3, [](Rendezvous& rendezvous) {
    const std::string rank = std::to_string(rendezvous.rank());
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(rendezvous.meet("each", rank, doubled), rank + rank);
      EXPECT_EQ(rendezvous.meet("all", rank, [](Texts texts) { return std::vector{texts[2] + texts[1]}; }),
                "21");
    }
    EXPECT_THAT(rendezvous.exchange("texts", rank), ElementsAre("0", "1", "2"));
    EXPECT_THAT(rendezvous.exchange("nothing", ""), ElementsAre("", "", ""));
  });
}

TEST(Rendezvous, ThrowsTheErrorOfTheAnswerOnEveryRankAndContinues) {
  ThreadWorld::run(3, [](Rendezvous& rendezvous) {
    const auto fails = [](Texts texts) -> std::vector<std::string> {
      throw Error(ErrorCode::config, "run.yaml:3", "of '" + texts[2] + "'", "mend: it");
    };
    EXPECT_EQ(tests::thrown_by([&] { rendezvous.meet("fails", std::to_string(rendezvous.rank()), fails); }),
              "error[config] run.yaml:3: of '2'\n  hint: mend: it");
    rendezvous.barrier("after it");
  });
}

TEST(Rendezvous, AnswersOnOneRankAndInADryWorld) {
  AloneRendezvous alone;
  EXPECT_EQ(alone.meet("key", "a", doubled), "aa");
  DryRendezvous dry(5, 4096);
  EXPECT_EQ(dry.meet("key", "a", doubled), "aa");
  EXPECT_EQ(dry.exchange("key", "a").size(), 4096u);
}

// Each rank's side in turn, with texts longer than a piece, and with empty texts.
TEST(StoreRendezvous, PassesTextsAndAnswersAndCleansUp) {
  constexpr int kRanks = 5;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (const size_t length : {size_t{0}, size_t{3}, (size_t{9} << 20) + 1})
    for (const bool for_all : {false, true}) {
      std::vector<mesh::StoreRendezvous> ranks;
      for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(store, "key/", rank, kRanks);
      const auto text_of = [&](int rank) { return std::string(length, static_cast<char>('a' + rank)); };
      for (int rank = 1; rank < kRanks; ++rank) {
        EXPECT_FALSE(ranks[0].is_complete());
        EXPECT_EQ(ranks[0].absent().size(), static_cast<size_t>(kRanks - rank));
        ranks[rank].give(text_of(rank));
        EXPECT_FALSE(ranks[rank].is_answered());
      }
      ASSERT_TRUE(ranks[0].is_complete());
      std::vector<std::string> texts = ranks[0].texts(text_of(0));
      for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(texts.at(rank), text_of(rank));
      if (for_all) texts.resize(1);
      EXPECT_EQ(ranks[0].answer(texts), text_of(0));
      for (int rank = 1; rank < kRanks; ++rank) {
        EXPECT_FALSE(ranks[0].is_read());
        ASSERT_TRUE(ranks[rank].is_answered());
        EXPECT_EQ(ranks[rank].take(), text_of(for_all ? 0 : rank));
      }
      ASSERT_TRUE(ranks[0].is_read());
      ranks[0].clear();
      EXPECT_EQ(store->getNumKeys(), 0);
    }
}

}  // namespace
}  // namespace heddle
