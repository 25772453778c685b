// Predicted time of a recorded step and of a pipeline schedule.
#include "lib/cost/time/step_time.h"

#include <gtest/gtest.h>

#include <vector>

#include "lib/cost/time/rank_time.h"
#include "lib/cost/time/timeline.h"

namespace heddle {
namespace {

// A machine with 1 byte/s of memory bandwidth and 2 bytes/s of link bandwidth.
MachineFile slow_machine() {
  MachineFile machine;
  machine.memory_bandwidth = 1;
  machine.memory_efficiency = 1;
  machine.kernel_seconds = machine.launch_seconds = machine.collective_interference = 0;
  machine.node_bandwidth = 2;
  machine.node_latency = machine.collective_seconds = 0;
  return machine;
}

OperatorCall work(int64_t moment, double seconds) {
  OperatorCall call;
  call.name = "aten::add";
  call.cost = {0, seconds, 0};
  call.moment = moment;
  return call;
}

DryEntry gather(int64_t posted, int64_t waited, int64_t bytes) {
  DryEntry entry{mesh::Operation::all_gather, bytes, "dp", 2};
  entry.posted = posted;
  entry.waited = waited;
  return entry;
}

TimedAction action(Action::Kind kind, int stage, int microbatch, double begin, double end) {
  TimedAction out;
  out.action = {kind, stage, microbatch};
  out.begin = begin;
  out.end = end;
  return out;
}

TEST(RankTime, HidesACollectiveBehindTheWorkBetweenItsCallAndItsWait) {
  engine::DryStep step;
  step.groups["dp"] = {0, 1};
  step.computed.calls = {work(0, 3), work(2, 4), work(4, 1)};
  step.step = {gather(1, 3, 40)};  // 20 bytes from the other rank at 2 bytes/s take 10 s
  const RankTime time = rank_time(step, slow_machine(), /*with_timeline=*/true);
  EXPECT_DOUBLE_EQ(time.seconds, 3 + 10 + 1);
  EXPECT_DOUBLE_EQ(time.by_kind.at("other operators"), 8);
  EXPECT_DOUBLE_EQ(time.waits.at("dp"), 6);
  EXPECT_DOUBLE_EQ(time.traffic.at("dp"), 10);
  EXPECT_EQ(time.timeline.size(), 4U);
  step.step[0].bytes = 12;  // 3 s, all hidden by computation
  EXPECT_DOUBLE_EQ(rank_time(step, slow_machine()).seconds, 8);
}

TEST(RankTime, SharesLinksAmongGroups) {
  engine::DryStep step;
  step.groups["dp"] = step.groups["tp"] = {0, 1};
  step.computed.calls = {work(4, 1)};
  step.step = {gather(0, 2, 40), gather(1, 3, 40)};
  step.step[1].group = "tp";
  EXPECT_DOUBLE_EQ(rank_time(step, slow_machine()).seconds, 21);
}

TEST(RankTime, WaitsForTransfersOfARing) {
  engine::DryStep step;
  step.groups["cp"] = {0, 1};
  step.computed.calls = {work(2, 3), work(5, 1)};
  DryEntry send = gather(0, 3, 16), receive = gather(1, 4, 16);
  send.operation = mesh::Operation::send;
  receive.operation = mesh::Operation::receive;
  send.group = receive.group = "cp";
  step.step = {send, receive};
  const RankTime time = rank_time(step, slow_machine());
  EXPECT_DOUBLE_EQ(time.seconds, 16 / (2 * 0.8) + 1);  // pairs reach 80 % of the bandwidth
  EXPECT_DOUBLE_EQ(time.waits.at("cp"), 7);
}

TEST(RankTime, RecordsMemoryAtTheEndOfEachOperator) {
  engine::DryStep step;
  step.computed.calls = {work(1, 3), work(4, 1)};
  step.computed.allocations = {{100, 0, Allocation::kAlive}, {50, 2, 3}, {20, 3, 5}};
  const RankTime time = rank_time(step, slow_machine(), /*with_timeline=*/true);
  ASSERT_EQ(time.memory.size(), 2U);
  EXPECT_EQ(time.memory[0].bytes, 100);
  EXPECT_EQ(time.memory[1].bytes, 150);  // the maximum between the ends of the two operators
  EXPECT_DOUBLE_EQ(time.memory[1].seconds, 4);
}

TEST(PeakByKind, SumsAllocationsThatAreAliveAtThePeak) {
  engine::DryStep step;
  step.begin = 10;
  step.computed.allocations = {{1000, 0, Allocation::kAlive},  // allocated before the step
                               {16, 11, 40},                   // output of an all-gather
                               {8, 14, 32},                    // kept for the backward pass
                               {4, 15, 16},                    // freed in the forward pass
                               {32, 31, 45},                   // kept until after the schedule
                               {2, 31, 33}};                   // freed at once
  DryEntry entry = gather(12, 13, 16);
  step.step = {entry};
  RanAction forward{}, backward{};
  forward.action = {Action::forward, 0, 0};
  backward.action = {Action::backward, 0, 0};
  forward.ready_moment = 13, forward.last_moment = 20;
  backward.ready_moment = 30, backward.last_moment = 35;
  step.recording.actions = {forward, backward};
  RanPhase schedule{"schedule", {}, {}};
  schedule.last_moment = 36;
  step.recording.phases = {schedule};
  const std::map<std::string, double> want = {{"parameters and optimizer", 1000},
                                              {"gathered parameters", 16},
                                              {"activations", 8},
                                              {"gradients", 32},
                                              {"buffers", 2}};
  EXPECT_EQ(peak_by_kind(step), want);
}

TEST(RankTimeline, FollowsTheScheduleOfItsPipeline) {
  RankTimeline timeline;
  timeline.seconds = 6;
  timeline.spans = {{"compute", "aten::mm", "products", 0, 2},
                    {"compute", "aten::mm", "products", 2, 5},
                    {"dp", "all_reduce", "collectives", 5, 6}};
  timeline.memory = {{1, 10}};
  const std::vector<TimedAction> actions = {action(Action::forward, 0, 0, 0, 2),
                                            action(Action::backward, 0, 0, 2, 5)};
  const std::vector<Action> row = {actions[0].action, actions[1].action};
  move_to_schedule(timeline, actions, row, std::vector<schedule::TimeSpan>{{1, 3}, {10, 13}});
  EXPECT_DOUBLE_EQ(timeline.spans[0].begin, 1);
  EXPECT_DOUBLE_EQ(timeline.spans[0].end, 3);
  EXPECT_DOUBLE_EQ(timeline.spans[1].begin, 10);
  EXPECT_DOUBLE_EQ(timeline.spans[2].end, 14);
  EXPECT_DOUBLE_EQ(timeline.memory[0].seconds, 2);
}

TEST(RankTime, WaitsForTheHost) {
  engine::DryStep step;
  step.computed.calls = {work(0, 1), work(1, 1)};
  MachineFile machine = slow_machine();
  machine.launch_seconds = 5;
  const RankTime time = rank_time(step, machine);
  EXPECT_DOUBLE_EQ(time.seconds, 11);
  EXPECT_DOUBLE_EQ(time.by_kind.at(kHost), 9);
}

TEST(StepTime, RepeatsPassesThatWereNotRecorded) {
  RankTime rank;
  rank.seconds = 10;
  rank.actions = {action(Action::forward, 0, 0, 0, 2), action(Action::backward, 0, 0, 2, 5),
                  action(Action::forward, 0, 0, 5, 6), action(Action::backward, 0, 0, 6, 9)};
  EXPECT_DOUBLE_EQ(step_time(rank, 2, 2).seconds, 10);
  EXPECT_DOUBLE_EQ(step_time(rank, 2, 5).seconds, 10 + 3 * 4);
}

TEST(StepTime, FollowsTheScheduleOfAPipeline) {
  std::vector<RankTime> ranks(2);
  for (int stage = 0; stage < 2; ++stage) {
    ranks[stage].actions = {action(Action::forward, stage, 0, 0, 1),
                            action(Action::backward, stage, 0, 1, 3)};
    ranks[stage].after_schedule = 0.5;
  }
  const std::vector<const RankTime*> pointers = {&ranks[0], &ranks[1]};
  const auto f = [](int stage, int microbatch) { return Action{Action::forward, stage, microbatch}; };
  const auto b = [](int stage, int microbatch) { return Action{Action::backward, stage, microbatch}; };
  const ScheduleTable table = {{f(0, 0), f(0, 1), b(0, 0), b(0, 1)}, {f(1, 0), b(1, 0), f(1, 1), b(1, 1)}};
  const std::vector<int> places = {0, 1};
  const StepTime time = step_time(PipelineTimes{pointers, table, places, 3});
  // 1F1B with 2 microbatches on 2 ranks takes 3 times a forward and a backward.
  EXPECT_DOUBLE_EQ(time.seconds, 3 * 9 + 0.5);
  EXPECT_DOUBLE_EQ(time.bubble, 3 * 3);
  EXPECT_EQ(time.limit(), "bubble");
}

}  // namespace
}  // namespace heddle
