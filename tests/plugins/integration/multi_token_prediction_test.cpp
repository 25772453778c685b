// Multi-token prediction heads of recipes: keys beside the model's config, and keys that cannot be read.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lib/run/model/prepared_model.h"
#include "lib/run/recipe/recipe.h"
#include "tests/core/engine/setups.h"
#include "thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::string model_at(const std::string& golden, const std::string& more) {
  const auto place = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/golden" / golden;
  return "model: {pretrained_model_name_or_path: " + place.string() + more + "}\n";
}

PreparedModel prepared(const std::string& yaml) {
  std::vector<std::string> warnings;
  return prepare_model(read_recipe(config::read_text(yaml, "run.yaml")), tests::built_plugins(), warnings);
}

std::map<std::string, std::string> signature_of(const std::string& yaml) {
  return prepared(yaml).spec->signature();
}

TEST(MultiTokenPredictionHeads, ApplyLikeKeysOfConfigJson) {
  EXPECT_EQ(signature_of(model_at("nemotron_h_mtp_repeated", "")).at("num_nextn_predict_layers"), "3");
  const auto changed = signature_of(
      model_at("nemotron_h_mtp_repeated",
               ", num_nextn_predict_layers: 2, mtp_use_repeated_layer: true, mtp_loss_scaling_factor: 0.5"));
  EXPECT_EQ(changed.at("num_nextn_predict_layers"), "2");
  EXPECT_EQ(changed.at("mtp_loss_scaling_factor"), "0.5");
  const auto random = signature_of(
      "model: {config: {model_type: nemotron_h, hidden_size: 8, hybrid_override_pattern: 'M*', "
      "num_attention_heads: 2, num_key_value_heads: 1, head_dim: 4, mamba_num_heads: 2, n_groups: 1}, "
      "num_nextn_predict_layers: 1}\n");
  EXPECT_EQ(random.at("num_nextn_predict_layers"), "1");
}

TEST(MultiTokenPredictionHeads, AreRefusedIfTheModelHasNone) {
  EXPECT_EQ(
      tests::thrown_by([] { prepared(model_at("llama", ", num_nextn_predict_layers: 2")); }),
      "error[not_built] run.yaml:1 model.num_nextn_predict_layers: the family llama has no multi-token "
      "prediction heads in heddle\n  hint: remove num_nextn_predict_layers to train on the next token only");
  prepared(model_at("llama", ", num_nextn_predict_layers: 0, mtp_loss_scaling_factor: 0.1"));
  EXPECT_THAT(
      tests::thrown_by([] { prepared(model_at("nemotron_h_latent", ", num_nextn_predict_layers: 2")); }),
      HasSubstr("mtp.layers.0.eh_proj.weight would be added"));
}

}  // namespace
}  // namespace heddle
