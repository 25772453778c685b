// A rank's row of a schedule, completed with peers, tags and last actions.
#include "lib/train/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::thrown_by;
using train::make_program;
using train::Program;
using train::Turn;

// Looped stages: forwards in model order, then backwards in reverse order, whole or split.
class Waves : public IPipelineSchedule {
 public:
  explicit Waves(bool splits) : splits_(splits) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    ScheduleTable table(ranks);
    const auto wave = [&](Action::Kind kind, bool upwards) {
      for (int i = 0; i < stages; ++i)
        for (int at = 0; at < microbatches; ++at) {
          const int stage = upwards ? i : stages - 1 - i;
          table[stage % ranks].push_back({kind, stage, at});
        }
    };
    wave(Action::forward, true);
    wave(splits_ ? Action::backward_input : Action::backward, false);
    if (splits_) wave(Action::backward_weight, false);
    return table;
  }
  int rank_of(int stage, int ranks, int) const override { return stage % ranks; }
  StagesPerRank stages_per_rank() const override { return {1, kAnyNumber}; }

 private:
  bool splits_;
};

class Forgetful : public Waves {
 public:
  Forgetful() : Waves(false) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    ScheduleTable table = Waves::plan(ranks, stages, microbatches);
    table[0].pop_back();
    return table;
  }
};

Pipeline pipeline_of(int ranks, int stages, std::shared_ptr<const IPipelineSchedule> schedule) {
  Pipeline pipeline;
  pipeline.rank_of_stage.clear();
  for (int stage = 0; stage < stages; ++stage) pipeline.rank_of_stage.push_back(stage % ranks);
  pipeline.schedule = std::move(schedule);
  return pipeline;
}

Program program_of(const Pipeline& pipeline, int rank, int ranks, int microbatches,
                   schedule::Purpose purpose = schedule::Purpose::training) {
  return make_program(Stages(pipeline, rank), ranks, microbatches, purpose);
}

std::vector<std::string> names_of(const Program& program) {
  std::vector<std::string> names;
  for (const Turn& turn : program.turns) names.push_back(schedule::name_of(turn.action));
  return names;
}

std::vector<std::string> last_of(const Program& program) {
  std::vector<std::string> names;
  for (const Turn& turn : program.turns)
    if (turn.last) names.push_back(schedule::name_of(turn.action));
  return names;
}

TEST(Program, RunsOneForwardAndBackwardWithoutASchedule) {
  const Program program = make_program(Stages(), 1, 1, schedule::Purpose::training);
  EXPECT_EQ(program.microbatches, 1);
  EXPECT_FALSE(program.splits);
  EXPECT_THAT(names_of(program), ElementsAre("0UNSHARD", "0F0", "0B0", "0REDUCE_GRAD", "0RESHARD"));
  EXPECT_THAT(last_of(program), ElementsAre("0B0", "0RESHARD"));
}

TEST(Program, HasForwardsAloneInAnEvaluation) {
  const Pipeline pipeline = pipeline_of(2, 4, std::make_shared<Waves>(true));
  const Program program = program_of(pipeline, 1, 2, 1, schedule::Purpose::evaluation);
  EXPECT_FALSE(program.splits);
  for (const Turn& turn : program.turns) {
    EXPECT_NE(turn.action.kind, Action::backward_input);
    EXPECT_NE(turn.action.kind, Action::send_backward);
    EXPECT_NE(turn.action.kind, Action::reduce_gradients);
  }
}

TEST(Program, TurnsNameThisRanksStageByItsPlace) {
  const Pipeline pipeline = pipeline_of(3, 9, std::make_shared<Waves>(false));
  for (int rank = 0; rank < 3; ++rank)
    for (const Turn& turn : program_of(pipeline, rank, 3, 2).turns)
      EXPECT_EQ(turn.action.stage, rank + 3 * turn.local);
}

// Sender and receiver compute the tag of a transfer independently.
TEST(Program, GivesEachTransferATagOfItsOwn) {
  for (const bool splits : {false, true})
    for (const auto& [ranks, stages, microbatches] :
         {std::tuple(2, 2, 1), std::tuple(2, 6, 3), std::tuple(3, 6, 4), std::tuple(5, 5, 7)}) {
      const Pipeline pipeline = pipeline_of(ranks, stages, std::make_shared<Waves>(splits));
      std::map<std::tuple<int, int, int>, Action> sent;  // key: from, to, tag
      std::vector<std::pair<std::tuple<int, int, int>, Action>> received;
      for (int rank = 0; rank < ranks; ++rank)
        for (const Turn& turn : program_of(pipeline, rank, ranks, microbatches).turns) {
          if (schedule::sends(turn.action.kind))
            EXPECT_TRUE(sent.emplace(std::tuple(rank, turn.peer, turn.tag), turn.action).second);
          else if (schedule::receives(turn.action.kind))
            received.push_back({{turn.peer, rank, turn.tag}, turn.action});
          else
            EXPECT_EQ(turn.peer, -1);
        }
      EXPECT_EQ(sent.size(), static_cast<size_t>(2 * (stages - 1) * microbatches));
      EXPECT_EQ(received.size(), sent.size());
      for (const auto& [key, action] : received) {
        ASSERT_EQ(sent.count(key), 1u);
        EXPECT_EQ(schedule::counterpart(sent.at(key)), action);
      }
      // Headers use the tags 0 to stages - 1.
      for (const auto& [key, action] : sent) EXPECT_GE(std::get<2>(key), stages);
    }
}

// Transfers before the post-validation check match on all ranks.
TEST(Program, EndsItsOpeningBeforeTheFirstBackward) {
  for (const auto& [ranks, stages, microbatches] :
       {std::tuple(2, 2, 1), std::tuple(2, 6, 3), std::tuple(3, 6, 4), std::tuple(5, 5, 7)}) {
    Pipeline pipeline = pipeline_of(ranks, stages, std::make_shared<Waves>(true));
    EXPECT_EQ(program_of(pipeline, 0, ranks, microbatches).opening.turns, 0u);  // post_validation is off
    pipeline.config.post_validation = true;
    std::set<std::pair<int, int>> sent, received;  // (stage, microbatch) of the receive
    for (int rank = 0; rank < ranks; ++rank) {
      const Program program = program_of(pipeline, rank, ranks, microbatches);
      int forwards = 0;
      for (size_t at = 0; at < program.opening.turns; ++at) {
        const Action& action = program.turns[at].action;
        EXPECT_FALSE(action.kind == Action::backward_input || action.kind == Action::receive_backward);
        forwards += action.kind == Action::forward ? 1 : 0;
        if (action.kind == Action::send_forward) sent.emplace(action.stage + 1, action.microbatch);
        if (action.kind == Action::receive_forward) received.emplace(action.stage, action.microbatch);
      }
      for (const Turn& turn : program.opening.left)
        EXPECT_TRUE(received.emplace(turn.action.stage, turn.action.microbatch).second);
      EXPECT_EQ(forwards, stages / ranks * microbatches);  // these schedules run all forwards first
    }
    EXPECT_EQ(sent, received);
  }
}

TEST(Program, MarksTheLastBackwardOfEachStage) {
  const Program whole = program_of(pipeline_of(2, 4, std::make_shared<Waves>(false)), 0, 2, 3);
  EXPECT_FALSE(whole.splits);
  EXPECT_THAT(last_of(whole), ElementsAre("2B2", "2RESHARD", "0B2", "0RESHARD"));
  const Program split = program_of(pipeline_of(2, 4, std::make_shared<Waves>(true)), 0, 2, 3);
  EXPECT_TRUE(split.splits);
  EXPECT_THAT(last_of(split), ElementsAre("2W2", "2RESHARD", "0W2", "0RESHARD"));
}

TEST(Program, RefusesATableWithoutAnAction) {
  const Pipeline pipeline = pipeline_of(2, 2, std::make_shared<Forgetful>());
  for (const auto& act : {std::function<void()>([&] { train::check_schedule(pipeline, 2, 3); }),
                          std::function<void()>([&] { program_of(pipeline, 1, 2, 3); })}) {
    const std::string error = thrown_by(act);
    EXPECT_THAT(error, HasSubstr("distributed.pipeline"));
    EXPECT_THAT(error, HasSubstr("0B2"));
  }
}

}  // namespace
}  // namespace heddle
