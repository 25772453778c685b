// Damaged rows of an embedding are repaired while a model is read, to the same bits on every topology.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "heddle/checkpoint/safetensors.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

const std::string kInput = "model.embed_tokens.weight", kOutput = "lm_head.weight";

// Writes a changed copy of the golden model `name`.
void write_model(const std::string& name, const fs::path& directory,
                 const std::function<void(std::map<std::string, at::Tensor>&)>& change) {
  const fs::path golden = fs::path(HEDDLE_SOURCE_DIR) / "tests/golden" / name;
  const HfWeights weights(golden);
  std::map<std::string, at::Tensor> tensors;
  std::vector<checkpoint::TensorToWrite> all;
  for (const std::string& one : weights.names()) {
    const StoredTensor& stored = weights.at(one);
    tensors[one] = at::empty(stored.shape, stored.dtype);
    weights.read(one, std::vector<int64_t>(stored.shape.size(), 0), tensors[one]);
    all.push_back({one, stored.dtype, stored.shape});
  }
  change(tensors);
  fs::create_directories(directory);
  fs::copy_file(golden / "config.json", directory / "config.json");
  checkpoint::SafetensorsWriter writer(directory / "model.safetensors", all);
  for (const auto& one : all) writer.append(tensors.at(one.name));
  writer.finish();
}

// Rows 3, 60 and 63 are nearly zero, and row 17 is not finite.
void damage(std::map<std::string, at::Tensor>& tensors) {
  at::Tensor& input = tensors.at(kInput);
  input[3].zero_();
  input[60].mul_(1e-9);
  input[63].zero_();
  input[17].fill_(std::numeric_limits<double>::quiet_NaN());
}

class RowRepair : public ::testing::Test {
 protected:
  RowRepair() {
    write_model("llama", place_ / "model", damage);
    std::vector<uint16_t> tokens;
    for (uint32_t i = 0; i < 200; ++i) tokens.push_back(static_cast<uint16_t>((i * i + 3 * i) % 64));
    write_token_file(place_ / "train.bin", {20240520, 1, static_cast<int32_t>(tokens.size())}, tokens);
  }

  std::string recipe(const std::string& run, const std::string& distributed,
                     const std::string& repair) const {
    return "model: {pretrained_model_name_or_path: " + (place_ / "model").string() + ", dtype: float32}\n" +
           "embedding_row_repair: " + repair + "\ndistributed: " + distributed +
           "\ndataset: {file_pattern: " + (place_ / "train.bin").string() + ", seq_len: 7}\n" +
           "optimizer: {lr: 1.0e-30, weight_decay: 0}\n" +
           "step_scheduler: {global_batch_size: 4, max_steps: 1}\ncheckpoint: {save_consolidated: false, "
           "checkpoint_dir: " +
           (place_ / run).string() + "}\n";
  }
  std::string refusal(const std::string& repair, const std::string& distributed = "{strategy: single}",
                      int ranks = 1) const {
    std::vector<std::string> refusals;
    train_recipe(recipe("refused", distributed, repair), ranks, &refusals);
    return refusals.empty() ? "" : refusals.front();
  }

  ScratchDirectory place_;
};

// One step with almost no learning rate leaves float32 weights unchanged.
TEST_F(RowRepair, GivesTheSameRowsOnEveryTopology) {
  std::map<std::string, at::Tensor> wanted;
  write_model("llama", place_ / "other", [&](auto& tensors) {
    damage(tensors);
    wanted = tensors;
  });
  const at::Tensor squares = wanted[kInput].square().to(at::kDouble).sum(1);
  double sum = 0;
  for (int64_t row = 0; row < 64; ++row)
    if (row != 3 && row != 60 && row != 63 && row != 17) sum += squares[row].item<double>();
  const double target = std::sqrt(sum / 60);
  const std::string fp32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
  const std::vector<Topology> topologies = {{"one", 1, "{strategy: single}"},
                                            {"ddp", 2, "{strategy: ddp}"},
                                            {"fsdp2", 3, "{strategy: fsdp2, " + fp32 + "}"},
                                            {"tp", 2, "{strategy: single, tp_size: 2}"}};
  for (const Topology& topology : topologies) {
    const std::string steps = topology.ranks == 3 ? "fsdp2" : topology.name;
    std::string yaml = recipe(steps, topology.distributed, "{min_norm: 1.0e-4}");
    if (topology.ranks == 3) yaml.replace(yaml.find("global_batch_size: 4"), 20, "global_batch_size: 3");
    train_recipe(yaml, topology.ranks);
    const auto saved = tensors_of(place_ / (steps + "/epoch_0_step_0/model"));
    const at::Tensor &input = saved.at(kInput), &was = wanted.at(kInput), &output = wanted.at(kOutput);
    for (int64_t row = 0; row < 64; ++row) {
      if (row != 3 && row != 60 && row != 63 && row != 17) {
        EXPECT_TRUE(input[row].equal(was[row])) << topology.name << " row " << row;
        continue;
      }
      EXPECT_NEAR(input[row].norm().item<double>(), target, 1e-6 * target) << topology.name << " row " << row;
      const at::Tensor scaled = output[row] * (target / output[row].norm().item<double>());
      EXPECT_TRUE(at::allclose(input[row], scaled, 1e-6, 1e-8)) << topology.name << " row " << row;
    }
    EXPECT_TRUE(input.equal(tensors_of(place_ / "one/epoch_0_step_0/model").at(kInput))) << topology.name;
  }
}

TEST_F(RowRepair, RefusesMoreDamagedRowsThanMaxRows) {
  EXPECT_THAT(
      refusal("{min_norm: 1.0e-4, max_rows: 3}"),
      HasSubstr("embedding_row_repair: 4 rows of 'model.embed_tokens.weight' are damaged, but max_rows is "
                "3: the files may belong to another model, or be broken"));
  EXPECT_THAT(refusal("{min_norm: 1000}"),
              HasSubstr("no row of 'model.embed_tokens.weight' is above min_norm"));
}

TEST_F(RowRepair, RefusesRowsWithDamagedOutputRows) {
  fs::remove_all(place_ / "model");
  write_model("llama", place_ / "model", [](auto& tensors) {
    damage(tensors);
    tensors.at(kOutput)[60].zero_();
  });
  EXPECT_THAT(refusal("{}"), HasSubstr("the output rows of the damaged input rows 60 are damaged too\n"));
  fs::remove_all(place_ / "model");
  // Row 5 is the padding row.
  write_model("llama_tied", place_ / "model", [](auto& tensors) { tensors.at(kInput)[3].zero_(); });
  EXPECT_THAT(refusal("{}"), HasSubstr("rows 3, 5 are damaged too: the head is tied to the embedding"));
}

// When disabled, rows are not changed, and a run does not start with non-finite values.
TEST_F(RowRepair, IsOffWithEnabledFalse) {
  EXPECT_THAT(refusal("{enabled: false}"), HasSubstr("model.embed_tokens.weight"));
  EXPECT_EQ(refusal("{}"), "");
}

}  // namespace
}  // namespace heddle::tests
