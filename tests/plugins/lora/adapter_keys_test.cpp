// Keys of adapter_config.json: the table of plugins/lora/README.md describes the effect of each, and lists
// all keys of PEFT.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/find_model.h"
#include "plugins/lora/peft_golden.h"
#include "plugins/whole_runs.h"
#include "tests/core/engine/setups.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kSource = HEDDLE_SOURCE_DIR;

struct KeyRow {
  std::string key, example, effect;
};

// Splits a table row into cells. Backticks are dropped.
std::vector<KeyRow> rows_of_readme() {
  std::ifstream in(kSource + "/plugins/lora/README.md");
  std::vector<KeyRow> out;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) inside = line == "## Keys of adapter_config.json";
    if (!inside || !line.starts_with("| `")) continue;
    std::istringstream cells(line);
    std::string cell;
    std::vector<std::string> row;
    while (std::getline(cells, cell, '|')) {
      std::erase(cell, '`');
      row.push_back(cell.size() < 2 ? "" : cell.substr(1, cell.size() - 2));
    }
    out.push_back({row.at(1), row.at(2), row.at(3)});
  }
  return out;
}

// An adapter of one linear layer and of one projection of experts.
class AdapterKeys : public ::testing::Test {
 protected:
  static constexpr const char* kQueries = "model.layers.0.self_attn.q_proj";
  static constexpr const char* kExperts = "model.layers.0.mlp.experts";

  std::filesystem::path write(const nlohmann::json& keys) const {
    std::map<std::string, at::Tensor> tensors;
    tensors[std::string("base_model.model.") + kQueries + ".lora_A.weight"] = at::full({3, 8}, 2.0F);
    tensors[std::string("base_model.model.") + kQueries + ".lora_B.weight"] = at::ones({8, 3});
    tensors[std::string("base_model.model.") + kExperts + ".lora_A.weight"] = at::full({6, 5}, 3.0F);
    tensors[std::string("base_model.model.") + kExperts + ".lora_B.weight"] = at::ones({8, 6});
    std::filesystem::create_directories(folder_ / "adapter");
    checkpoint::write_text(folder_ / "adapter" / kAdapterConfig, keys.dump());
    std::vector<checkpoint::TensorToWrite> listed;
    for (const auto& [name, tensor] : tensors)
      listed.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    checkpoint::SafetensorsWriter writer(folder_ / "adapter" / kAdapterWeights, listed);
    for (const auto& [name, tensor] : tensors) writer.append(tensor);
    writer.finish();
    return folder_ / "adapter";
  }

  // Returns the model with these keys in addition to the usual ones (its base and its weights), or the error.
  std::string outcome(const std::string& members) const {
    nlohmann::json keys = {{"peft_type", "LORA"},
                           {"r", 3},
                           {"lora_alpha", 6},
                           {"base_model_name_or_path", "base"},
                           {"target_modules", {"q_proj"}},
                           {"target_parameters", {"experts.down_proj"}}};
    keys.update(nlohmann::json::parse("{" + members + "}"));
    const std::filesystem::path place = write(keys);
    try {
      const AdapterConfig config = read_adapter_config(place);
      const ParameterSource source =
          with_adapter([](const Shard&) { return true; }, place, engine::read_model(model_, built_plugins()));
      std::ostringstream out;
      out << config.base << " " << config.revision
          << at::cat({box_of(source, std::string(kQueries) + ".weight", {8, 8}).flatten(),
                      box_of(source, std::string(kExperts) + ".down_proj", {2, 8, 5}).flatten()});
      return out.str();
    } catch (const Error& error) {
      return error.what();
    }
  }

  ScratchDirectory folder_;
  Node model_ = config::read_text(
      "{model_type: qwen3_moe, vocab_size: 11, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, "
      "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, max_position_embeddings: 16, "
      "num_experts: "
      "2, num_experts_per_tok: 1, moe_intermediate_size: 5, router_aux_loss_coef: 0}",
      "config.json");
};

TEST_F(AdapterKeys, MatchTheTableOfTheReadme) {
  const std::string plain = outcome("");
  ASSERT_THAT(plain, StartsWith("base "));
  for (const KeyRow& row : rows_of_readme()) {
    const std::string found = outcome("\"" + row.key + "\": " + row.example);
    const std::string refusal =
        "error[not_built] " + (folder_ / "adapter" / kAdapterConfig).string() + ": " + row.key + " is ";
    if (row.effect == "no effect")
      EXPECT_EQ(found, plain) << row.key;
    else if (row.effect == "refused")
      EXPECT_THAT(found, StartsWith(refusal)) << row.key;
    else
      EXPECT_TRUE(row.effect == "acts" && found != plain && !found.starts_with(refusal)) << row.key << found;
  }
}

TEST_F(AdapterKeys, AreCompleteInTheTableAndTheReader) {
  const auto golden =
      nlohmann::json::parse(std::ifstream(kSource + "/tests/golden/peft/keys.json")).at("keys");
  std::set<std::string> of_peft, of_table, of_reader;
  for (const auto& [key, value] : golden.items()) of_peft.insert(key);
  for (const KeyRow& row : rows_of_readme()) of_table.insert(row.key);
  for (const AdapterKey& key : adapter_keys()) of_reader.insert(std::string(key.name));
  EXPECT_EQ(of_table, of_peft);
  EXPECT_EQ(of_reader, of_peft);
}

TEST_F(AdapterKeys, HaveNoEffectWithTheDefaultsOfPeft) {
  const std::string plain = outcome("");
  const auto golden =
      nlohmann::json::parse(std::ifstream(kSource + "/tests/golden/peft/keys.json")).at("keys");
  const std::set<std::string> read = {
      "peft_type", "r", "lora_alpha", "base_model_name_or_path", "target_modules", "target_parameters"};
  for (const auto& [key, value] : golden.items())
    EXPECT_EQ(read.contains(key) ? plain : outcome("\"" + key + "\": " + value.dump()), plain) << key;
}

TEST_F(AdapterKeys, AreRefusedByNameWithAHint) {
  const std::string place = (folder_ / "adapter" / kAdapterConfig).string();
  EXPECT_EQ(
      outcome(R"("init_lora_weights": "pissa_niter_4")"),
      "error[not_built] " + place +
          ": init_lora_weights is \"pissa_niter_4\", but PEFT changes the base weights when it loads such "
          "an adapter\n  hint: save the adapter for the unchanged base with PEFT's save_pretrained(DIR, "
          "path_initial_model_for_weight_conversion=INITIAL), or merge the adapter with PEFT: "
          "PeftModel.from_pretrained(BASE, ADAPTER).merge_and_unload().save_pretrained(DIR)");
  for (const char* word : {"olora", "OLoRA", "corda", "loftq", "lora_ga", "newer"})
    EXPECT_THAT(outcome("\"init_lora_weights\": \"" + std::string(word) + "\""),
                HasSubstr("init_lora_weights is \"" + std::string(word) + "\", but PEFT changes the base"));
  for (const char* word : {"true", "false", "null", R"("orthogonal")", R"("eva")", R"("mica")"})
    EXPECT_EQ(outcome("\"init_lora_weights\": " + std::string(word)), outcome("")) << word;
  EXPECT_EQ(outcome(R"("modules_to_save": ["lm_head"])"),
            "error[not_built] " + place +
                ": modules_to_save is [\"lm_head\"], but heddle reads A and B, not modules that were trained "
                "whole\n  hint: merge the adapter with PEFT: PeftModel.from_pretrained(BASE, "
                "ADAPTER).merge_and_unload().save_pretrained(DIR)");
  EXPECT_EQ(outcome(R"("rank_growth": {"q_proj": 2})"),
            "error[not_built] " + place +
                ": rank_growth is {\"q_proj\":2}, but PEFT 0.21 has no such key\n  hint: remove the key if "
                "it does not affect the model, or merge the adapter with PEFT: "
                "PeftModel.from_pretrained(BASE, ADAPTER).merge_and_unload().save_pretrained(DIR)");
  EXPECT_EQ(outcome(R"("rank_growth": {})"), outcome(""));
}

TEST_F(AdapterKeys, AreRefusedWithTheirExpectedValues) {
  EXPECT_THAT(outcome(R"("r": 3.5)"), HasSubstr("r is 3.5; expected integers of 1 or more\n  hint: save"));
  EXPECT_THAT(outcome(R"("r": null)"), HasSubstr("has no number r\n"));
  EXPECT_THAT(outcome(R"("rank_pattern": {"q_proj": 0})"),
              HasSubstr("rank_pattern is {\"q_proj\":0}; expected integers of 1 or more"));
  EXPECT_THAT(outcome(R"("alpha_pattern": [1])"),
              HasSubstr("alpha_pattern is [1]; expected a map of patterns to numbers"));
  EXPECT_THAT(outcome(R"("alpha_pattern": {"q_proj": "1"})"), HasSubstr("; expected numbers\n"));
  EXPECT_THAT(outcome(R"("layers_to_transform": ["0"])"),
              HasSubstr("layers_to_transform is [\"0\"]; expected an integer or a list of integers"));
  EXPECT_THAT(outcome(R"("target_modules": [1])"),
              HasSubstr("target_modules is [1]; expected a text or a list of texts"));
  EXPECT_THAT(outcome(R"("use_rslora": 1)"), HasSubstr("use_rslora is 1; expected true or false"));
  EXPECT_THAT(outcome(R"("target_modules": "(?i)q_proj")"),
              HasSubstr("target_modules is \"(?i)q_proj\", but heddle cannot read its regular expression: "));
  EXPECT_THAT(outcome(R"("target_modules": "q_proj\\Z")"),
              HasSubstr("but heddle does not read \\Z in a regular expression\n  hint: list the names"));
}

TEST_F(AdapterKeys, SelectLayersLikePeft) {
  const std::string plain = outcome("");
  for (
      const char* members :
      {R"("target_modules": "all-linear")", R"("target_modules": ".*\\.q_proj")",
       R"-("target_modules": "(?:.*?(?:self_attn|mlp).*?(?:q_proj|up_proj))|(?:\\bmodel\\.layers\\.[\\d]{1,}\\.x)")-",
       R"("target_modules": ["self_attn.q_proj"])", R"("layers_to_transform": 0)",
       R"("layers_to_transform": [0, 5], "layers_pattern": ["blocks", "layers"])",
       R"("exclude_modules": ["proj", "layers.1.self_attn.q_proj"])", R"("exclude_modules": "q_proj")",
       R"("alpha_pattern": {"proj": 1, "^layers.0.*": 1})", R"("rank_pattern": {"q_proj": 3, ".*": 3})"})
    EXPECT_EQ(outcome(members), plain) << members;
  const std::string refusal = std::string("the adapter of '") + kQueries +
                              "' is not among the layers that adapter_config.json names (target_modules, "
                              "exclude_modules, layers_to_transform, target_parameters)\n";
  for (const char* members :
       {R"("target_modules": ["proj"])", R"("target_modules": "q_proj")", R"("target_modules": [])",
        R"("target_modules": null)", R"("layers_to_transform": [1])", R"("exclude_modules": ".*q_proj")"})
    EXPECT_THAT(outcome(members), HasSubstr(refusal)) << members;
}

TEST_F(AdapterKeys, MustMatchTheRankOfTheTensors) {
  const std::string end =
      "\n  hint: check that the adapter was trained for the base model named in adapter_config.json";
  EXPECT_THAT(outcome(R"("r": 4)"),
              HasSubstr(std::string("the adapter of '") + kExperts +
                        "' has rank 3, but r and rank_pattern of adapter_config.json give 4" + end));
  EXPECT_THAT(outcome(R"("rank_pattern": {"q_proj": 8})"),
              HasSubstr(std::string("the adapter of '") + kQueries +
                        "' has rank 3, but r and rank_pattern of adapter_config.json give 8" + end));
}

// AutoModel uses another rank than r for experts, and other names in target_modules than those of its
// tensors.
TEST_F(AdapterKeys, DoNotSelectLayersInADirectoryOfAutoModel) {
  checkpoint::write_text(write({}) / "automodel_peft_config.json", R"({"moe_rank_scaling": true})");
  EXPECT_EQ(outcome(R"("target_modules": ["k_proj"], "r": 6, "rank_pattern": {"q_proj": 3})"), outcome(""));
  EXPECT_THAT(outcome(R"("r": 6)"), HasSubstr("q_proj' has rank 3, but r and"));
  checkpoint::write_text(folder_ / "adapter" / "automodel_peft_config.json",
                         R"({"moe_rank_scaling": false})");
  EXPECT_THAT(outcome(R"("r": 6, "rank_pattern": {"q_proj": 3})"), HasSubstr("experts' has rank 3, but r"));
}

// PEFT's adapter with patterns of ranks and of alphas, merged by PEFT.
TEST(Adapter, MergesLikePeftWithPatternsOfRanksAndAlphas) {
  const PeftGolden golden = {"llama_odd", "peft"};
  const ParameterSource source = golden.merged();
  const SafetensorsFile merged = golden.file("merged.safetensors");
  for (const auto& [name, tensor] : merged.tensors()) {
    const at::Tensor want = read_tensor(merged, name), found = box_of(source, name, tensor.shape);
    EXPECT_TRUE(found.allclose(want, 1e-6, 1e-7)) << name;
  }
}

TEST(Adapter, NamesAMissingRevisionOfItsBase) {
  const ScratchDirectory folder;
  std::filesystem::create_directories(folder / "adapter");
  checkpoint::write_text(
      folder / "adapter" / kAdapterConfig,
      R"({"r": 2, "lora_alpha": 4, "base_model_name_or_path": "org/base", "revision": "v2"})");
  EXPECT_EQ(thrown_by([&] { (void)find_model(folder / "adapter"); }),
            "error[input] " + (folder / "adapter" / kAdapterConfig).string() +
                ": base_model_name_or_path is org/base with the revision v2, which is not in the hub's "
                "cache\n  hint: download it with `hf download org/base --revision v2`");
}

}  // namespace
}  // namespace heddle::tests
