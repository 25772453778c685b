// Injected communicator faults in a training. Each report names both operations of the race.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulated/trainings.h"

namespace heddle::tests {
namespace {

using simulated::Machine;
using simulated::Mistake;
using simulated::Policy;

// Trainings into which the cases inject their fault.
const std::string kFsdp2 = "fsdp2 dp2 calls2", kTensor = "single tp2(sequence)",
                  kStages = "single pp2(1f1b) rows2", kRing = "fsdp2 cp2(ring)",
                  kExperts = "fsdp2 dp2 ep2(alltoall)", kDdp = "ddp dp2 calls2";

struct SeededCase {
  const char* name;
  simulated::Seeded seeded;
  std::string over = kFsdp2;
};

Training training_over(const std::string& line) {
  return on(line == kExperts ? eight_experts() : small(line == kStages ? 4 : 2), line);
}

class SeededMistake : public ::testing::TestWithParam<SeededCase> {};

TEST_P(SeededMistake, IsReportedByTheNamesOfBothPlaces) {
  Machine::get().begin(Policy::at_once);
  simulated::set_mistake(GetParam().seeded);
  Training run = on_gpus(training_over(GetParam().over));
  run.steps = 2;
  try {
    train(run);
  } catch (const Error& wrong_numbers) {  // an injected fault may give wrong numbers by chance
    EXPECT_EQ(wrong_numbers.code(), ErrorCode::plugin_failed) << wrong_numbers.what();
  }
  simulated::set_mistake({});
  const std::string operation = GetParam().seeded.operation + " on ";
  EXPECT_THAT(Machine::get().reports(), ::testing::Contains(::testing::AllOf(
                                            ::testing::HasSubstr("race: "), ::testing::HasSubstr(operation),
                                            ::testing::HasSubstr(" of cuda:0"))));
}

// A receive with a wrong tag.
TEST(SeededTag, IsReportedWithTheOneThatItMeets) {
  Machine::get().begin(Policy::at_once);
  std::string message;
  ThreadWorld world(2, std::chrono::minutes(1), Log());
  world.run([&](Rendezvous& host) {
    simulated::DeviceRendezvous device(host, host.rank());
    const auto group = device.group("pp", std::vector<int>{0, 1});
    const auto place =
        at::TensorOptions(at::kFloat).device(at::kCUDA, static_cast<c10::DeviceIndex>(host.rank()));
    const bool sends = host.rank() == 0;
    const at::Tensor a = at::ones({4}, place), b = at::ones({4}, place);
    const auto first = sends ? group->send(a, 1, 6) : group->receive(b, 0, 7);
    const auto second = sends ? group->send(b, 1, 7) : group->receive(a, 0, 6);
    first->wait();
    second->wait();
    host.barrier("posted");
    try {
      if (sends) Machine::get().synchronize_device(0, "the end");
    } catch (const Error& error) {
      message = error.message();
    }
    host.barrier("end");
  });
  EXPECT_THAT(message,
              ::testing::AllOf(::testing::HasSubstr("on pp"),
                               ::testing::HasSubstr("a receive with tag 7 meets the send with tag 6")));
}

INSTANTIATE_TEST_SUITE_P(
    SimulatedCuda, SeededMistake,
    ::testing::Values(
        SeededCase{"gather_not_waited_for", {Mistake::wait_dropped, "all_gather", 0}},
        SeededCase{"gather_without_event", {Mistake::event_not_recorded, "all_gather", 0}},
        SeededCase{"gather_on_wrong_stream", {Mistake::wrong_stream, "all_gather", 2}},
        SeededCase{"scatter_too_early", {Mistake::compute_not_awaited, "reduce_scatter", 0}},
        SeededCase{"scatter_not_waited_for", {Mistake::wait_dropped, "reduce_scatter", 0}},
        SeededCase{"scatter_without_event", {Mistake::event_not_recorded, "reduce_scatter", 1}},
        SeededCase{"scatter_on_wrong_stream", {Mistake::wrong_stream, "reduce_scatter", 1}},
        SeededCase{"norm_too_early", {Mistake::compute_not_awaited, "all_reduce", 1}},
        SeededCase{"norm_not_waited_for", {Mistake::wait_dropped, "all_reduce", 0}},
        SeededCase{"tp_gather_too_early", {Mistake::compute_not_awaited, "all_gather", 0}, kTensor},
        SeededCase{"tp_gather_not_waited_for", {Mistake::wait_dropped, "all_gather", 1}, kTensor},
        SeededCase{"tp_scatter_without_event", {Mistake::event_not_recorded, "reduce_scatter", 0}, kTensor},
        SeededCase{"pp_send_too_early", {Mistake::compute_not_awaited, "send", 2}, kStages},
        SeededCase{"pp_receive_not_waited_for", {Mistake::wait_dropped, "receive", 1}, kStages},
        SeededCase{"pp_receive_without_event", {Mistake::event_not_recorded, "receive", 2}, kStages},
        SeededCase{"ring_send_too_early", {Mistake::compute_not_awaited, "send", 1}, kRing},
        SeededCase{"ring_receive_not_waited_for", {Mistake::wait_dropped, "receive", 0}, kRing},
        SeededCase{"ring_send_on_wrong_stream", {Mistake::wrong_stream, "send", 2}, kRing},
        SeededCase{"experts_sent_too_early", {Mistake::compute_not_awaited, "all_to_all", 1}, kExperts},
        SeededCase{"experts_not_waited_for", {Mistake::wait_dropped, "all_to_all", 1}, kExperts},
        SeededCase{"experts_let_their_memory_go", {Mistake::tensors_let_go, "all_to_all", 1}, kExperts},
        SeededCase{"ddp_sum_too_early", {Mistake::compute_not_awaited, "all_reduce", 0}, kDdp},
        SeededCase{"ddp_sum_not_waited_for", {Mistake::wait_dropped, "all_reduce", 1}, kDdp}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
