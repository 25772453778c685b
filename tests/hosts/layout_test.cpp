// Every parallel layout on two hosts of two ranks each, compared with the same run on one rank.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cluster.h"
#include "run_folder.h"

namespace hosts {
namespace {

struct LayoutCase {
  const char* name;
  const char* model;        // value of --model
  const char* distributed;  // fields of the section `distributed`
};

void PrintTo(const LayoutCase& layout, std::ostream* out) {
  *out << layout.name;
}

const LayoutCase kLayouts[] = {
    {"Fsdp2", kLlama, "strategy: fsdp2"},
    {"HSDP", kLlama, "strategy: fsdp2, dp_replicate_size: 2"},
    {"DDP", kLlama, "strategy: ddp"},
    {"MegatronFsdp", kLlama, "strategy: megatron_fsdp"},
    {"TP4", kLlama, "strategy: fsdp2, tp_size: 4"},
    {"PP2", kLlama, "strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}"},
    {"PP4", kLlama, "strategy: fsdp2, pp_size: 4, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}"},
    {"CP2", kLlama, "strategy: fsdp2, cp_size: 2"},
    {"CP4", kLlama, "strategy: fsdp2, cp_size: 4"},
    {"EP2", kMixture, "strategy: fsdp2, ep_size: 2"},
    {"EP4", kMixture, "strategy: fsdp2, ep_size: 4"},
};

// Returns the folder of all layouts, with one single-rank run per model.
const RunFolder& reference_folder(const LayoutCase& layout) {
  static const RunFolder folder;
  static std::map<std::string, bool> trained;
  const std::string run = std::string("alone_") + (layout.model == kMixture ? "mixture" : "llama");
  if (!trained[run])
    folder.train_alone(folder.save_in(run, {"--model", layout.model, "--distributed", "{strategy: single}"}));
  trained[run] = true;
  return folder;
}

class Layout : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(Layout, EqualsOneRank) {
  const LayoutCase layout = GetParam();
  const RunFolder& folder = reference_folder(layout);
  std::string distributed = layout.distributed;
  if (distributed.find("fsdp2") != std::string::npos)
    distributed += ", mp_policy: {param_dtype: float32, reduce_dtype: float32}";
  TwoHosts hosts;
  hosts.train(folder.recipe(), folder.save_in(layout.name, {"--model", layout.model, "--distributed",
                                                            "{" + distributed + "}"}));
  ASSERT_TRUE(hosts.wait(60)) << hosts.report();
  ASSERT_TRUE(hosts.all_have_status(0)) << hosts.report();
  expect_equal_runs(folder.path(layout.name),
                    folder.path(layout.model == kMixture ? "alone_mixture" : "alone_llama"), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(TwoHosts, Layout, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return layout.param.name; });

}  // namespace
}  // namespace hosts
