// `heddle plugins check --device`: plugins train on simulated GPUs as on the CPU, and faults that only a
// device shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "flow/program.h"
#include "tests/main/with_all.h"

namespace {

HEDDLE_WITH_ALL("Plugins/PluginOnADevice.*:PluginsOnADevice.*");

using flow::heddle;
using flow::Outcome;
using flow::Words;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kLeftToTheCpu = ": not run: it only runs on the CPU, in a check without --device\n";

std::string gallery(const std::string& name) {
  return HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_" + name + ".so";
}

std::string built(const std::string& name) {
  return HEDDLE_BINARY_DIR "/plugins/libheddle_" + name + ".so";
}

Outcome on_gpus(const std::string& file, const Words& environment = {}, const std::string& ranks = "2") {
  return heddle({"plugins", "check", file, "--device", "simulated", "--ranks", ranks}, environment);
}

TEST(PluginsCheckOnADevice, TrainsAModelThereAndReportsWhatItLeavesToTheCpu) {
  const Outcome outcome = on_gpus(gallery("faulty_model"));
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("ok    models are trained on the device 'simulated': simulated, work "
                                     "runs as late as it may\n"));
  for (const char* way :
       {"trains under single", "trains with activation_checkpointing: full", "trains under fsdp2 on 2 ranks",
        "trains with tp_size: 2", "trains with pp_size: 2"})
    EXPECT_THAT(outcome.out, HasSubstr("ok    model 'faulty': " + std::string(way) + ": loss differs by "));
  EXPECT_THAT(outcome.out,
              HasSubstr("ok    model 'faulty': forward(): documents in one row are independent\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("--    model 'faulty': config_json(): read() gives the same model" + kLeftToTheCpu));
  EXPECT_THAT(outcome.out,
              HasSubstr("--    model 'faulty': gradients are finite differences in float64" + kLeftToTheCpu));
}

TEST(PluginsCheckOnADevice, TakesTheOrderOfTheWorkFromTheEnvironment) {
  const Outcome seed = on_gpus(gallery("faulty_optimizer"), {"HEDDLE_SIMULATED=3"});
  EXPECT_EQ(seed.status, 0) << seed.out << seed.error;
  EXPECT_THAT(seed.out, HasSubstr(": simulated, work runs in the random order 3\n"));
  const Outcome wrong = on_gpus(gallery("faulty_optimizer"), {"HEDDLE_SIMULATED=soon"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(
      wrong.out,
      HasSubstr("FAIL  models are trained on the device 'simulated': HEDDLE_SIMULATED must be at_once, late "
                "or a number, got 'soon'\n"));
}

// The plugin is correct on the CPU.
TEST(PluginsCheckOnADevice, NamesBothPlacesWhereAPluginReadsOnTheHost) {
  const auto expect_named = [](const std::string& name, const std::string& kit) {
    const Outcome outcome = on_gpus(gallery(name), {"HEDDLE_FAULT=reads_on_the_host"});
    EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.error;
    EXPECT_THAT(
        outcome.out,
        ContainsRegex("FAIL  " + kit +
                      ".*: the process ended \\(exit with status 134\\): simulated CUDA: host code read or "
                      "wrote a device address of a block of [0-9]+ bytes, which aten::[a-z_]+ on stream 0 of "
                      "cuda:[0-9] (reads|writes); the host was at libheddle_" +
                      name + "\\.so\\(.*\\+0x[0-9a-f]+\\)\n"));
  };
  expect_named("faulty_model", "model 'faulty': forward\\(\\): ");
  expect_named("faulty_optimizer", "optimizer 'faulty': ");
  expect_named("faulty_transform", "transform 'faulty': ");
}

std::string race_of(const std::string& plugin, const std::string& one, const std::string& other) {
  return "on the device 'simulated', with the plugin '" + plugin + "': race: " + one +
         " on stream [0-9]+ of cuda:[0-9] reads what " + other +
         " on stream [0-9]+ of cuda:[0-9] writes, and no event orders them";
}

TEST(PluginsCheckOnADevice, NamesBothPlacesOfUnorderedWork) {
  const Outcome model = on_gpus(gallery("faulty_model"), {"HEDDLE_FAULT=stream_of_its_own"});
  EXPECT_EQ(model.status, 2) << model.out << model.error;
  EXPECT_THAT(model.out, ContainsRegex("FAIL  model 'faulty': forward\\(\\): keeps nothing .*" +
                                       race_of("faulty_model", "aten::[a-z_]+", "aten::[a-z_]+")));
  EXPECT_THAT(model.out, ContainsRegex("FAIL  model 'faulty': trains under single: " +
                                       race_of("faulty_model", "aten::[a-z_]+", "aten::[a-z_]+")));
  const Outcome strategy = on_gpus(gallery("zero1_reads_before_wait"));
  EXPECT_EQ(strategy.status, 2) << strategy.out << strategy.error;
  EXPECT_THAT(strategy.out,
              ContainsRegex("FAIL  strategy 'zero1' on 2 ranks: .*" +
                            race_of("zero1_reads_before_wait", "aten::copy_", "reduce_scatter on dp")));
}

TEST(PluginsCheckOnADevice, RefusesStateThatIsNotOnTheDevice) {
  const Outcome outcome = on_gpus(gallery("faulty_optimizer"), {"HEDDLE_FAULT=state_on_cpu"}, "1");
  EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("FAIL  optimizer 'faulty' on 1 rank: update(): does not depend on the "
                                     "split: "));
  EXPECT_THAT(outcome.out, HasSubstr("cuda:0 and cpu"));
}

TEST(PluginsCheckOnADevice, ReportsKindsThatComputeNothingThere) {
  const auto expect_untrained = [](const std::string& file, const std::string& kind,
                                   const std::string& name) {
    const Outcome outcome = on_gpus(file);
    const std::string offer = kind + " '" + name + "'";
    EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.error;
    EXPECT_THAT(outcome.out,
                HasSubstr("--    models are trained on the device 'simulated': not run: no kit of "
                          "this file's offers uses a device\n"));
    EXPECT_THAT(outcome.out, HasSubstr("--    " + offer + ": its kits: not run: kits of the kind '" + kind +
                                       "' do not use a device; a check without --device runs them\n"));
    EXPECT_THAT(outcome.out, ContainsRegex("checks passed, but no kit trained with .*" + offer));
  };
  expect_untrained(built("mock"), "dataset", "MockIterableDataset");
  expect_untrained(built("tensorboard"), "metrics", "tensorboard");
}

TEST(PluginsCheckOnADevice, ComparesOptimizersWithTheCpu) {
  const Outcome outcome = on_gpus(built("adamw"), {}, "1,2");
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  for (const char* ranks : {"1 rank", "2 ranks"})
    EXPECT_THAT(outcome.out, HasSubstr("ok    optimizer 'AdamW' on " + std::string(ranks) +
                                       ": update(): does not depend on the split: weights differ by "));
}

TEST(PluginsCheckOnADevice, RefusesAnAbsentDevice) {
  const Outcome unknown = heddle({"plugins", "check", gallery("plain"), "--device", "simulatd"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.error,
            "error[usage] heddle plugins check --device: unknown device 'simulatd'\n"
            "  hint: did you mean simulated? available devices: cpu, cuda, simulated\n");
  const Outcome none =
      heddle({"plugins", "check", gallery("plain"), "--device", "cuda"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(none.status, 2) << none.out;
  EXPECT_THAT(
      none.error,
      AllOf(
          HasSubstr(
              "error[plugin_missing] heddle plugins check --device: no device is available on this machine"),
          HasSubstr("  hint: use --device simulated, which needs no GPU\n")));
}

TEST(PluginsCheckOnADevice, ReportsInJsonWhereItTrained) {
  const Outcome gpu =
      heddle({"plugins", "check", gallery("faulty_optimizer"), "--device", "simulated", "--json"});
  EXPECT_THAT(gpu.out, HasSubstr("libheddle_faulty_optimizer.so\",\"device\":\"simulated\",\"passed\":true"));
  const Outcome cpu = heddle({"plugins", "check", gallery("faulty_optimizer"), "--json"});
  EXPECT_THAT(cpu.out, HasSubstr("libheddle_faulty_optimizer.so\",\"device\":\"cpu\",\"passed\":true"));
}

// The suite PluginsOnADevice takes minutes.
TEST(PluginsOnADevice, NamesTheCollectiveThatAParallelizerReadsTooEarly) {
  const Outcome outcome = on_gpus(gallery("faulty_parallelizer"), {"HEDDLE_FAULT=reads_before_wait"});
  EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.out, ContainsRegex("FAIL  parallelizer 'faulty' on 2 ranks: .*" +
                                         race_of("faulty_parallelizer", "aten::copy_", "all_reduce on tp")));
}

// Every kind of parallelism over ranks that are threads with a GPU each.
class PluginOnADevice : public ::testing::TestWithParam<const char*> {};

TEST_P(PluginOnADevice, PassesAsOnTheCpu) {
  const Outcome outcome = heddle({"plugins", "check", built(GetParam()), "--device", "simulated", "--ranks",
                                  "2", "--time-limit", "900"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.out, Not(HasSubstr("FAIL")));
}

INSTANTIATE_TEST_SUITE_P(Plugins, PluginOnADevice,
                         ::testing::Values("fsdp2", "ddp", "megatron_fsdp", "tensor", "context", "moe",
                                           "pipeline", "lora"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
