// A pretrained model with keys that override its config.json.
#include "lib/run/model/overridden.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "heddle/base/error.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::error_of;
using tests::Folder;

class Overridden : public ::testing::Test {
 protected:
  Overridden() { use("mixtral"); }

  void use(const std::string& golden) {
    fs::remove_all(folder_ / "model");
    fs::copy(HEDDLE_SOURCE_DIR "/tests/golden/" + golden, folder_ / "model");
  }

  // Changes a key of the model's config.json.
  void set(const std::string& key, const nlohmann::ordered_json& value) const {
    std::ifstream in(folder_ / "model/config.json");
    auto config = nlohmann::ordered_json::parse(in);
    config[key] = value;
    folder_.write("model/config.json", config.dump());
  }

  // `more`: further keys of the section besides the path.
  PreparedModel open(const std::string& more) {
    const Recipe recipe = read_recipe(config::read_text(
        "model:\n  pretrained_model_name_or_path: " + (folder_ / "model").string() + "\n  " + more + "\n",
        "run.yaml"));
    warnings_.clear();
    return open_pretrained(recipe.model.directory, plugins_, recipe.model.overrides, warnings_);
  }
  // Keys that a recipe with AutoModel's class changes in config.json. `golden`: the model.
  std::string of_automodel(const std::string& golden, const std::string& more = "") {
    use(golden);
    const Recipe recipe = read_recipe(
        config::read_text("model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
                          "  pretrained_model_name_or_path: " +
                              (folder_ / "model").string() + "\n  " + more + "\n",
                          "run.yaml"));
    warnings_.clear();
    const ConfigOverrides with = with_recipe_keys(recipe.model, plugins_, warnings_).overrides;
    (void)open_pretrained(recipe.model.directory, plugins_, with, warnings_);
    return with.empty() ? "" : config::to_json(with.keys);
  }
  nlohmann::json effective(const std::string& more) {
    return nlohmann::json::parse(open(more).spec->config_json("float32"));
  }
  std::string refusal(const std::string& more) {
    return error_of(folder_, [&] { open(more); });
  }

  Folder folder_;
  PluginRegistry plugins_{{HEDDLE_BINARY_DIR "/plugins"}};
  std::vector<std::string> warnings_;
};

TEST_F(Overridden, KeysApplyToTheRunAndAreExportedOnRequest) {
  const std::string keys = "config: {router_aux_loss_coef: 0.5, max_position_embeddings: 512}";
  EXPECT_EQ(effective("")["router_aux_loss_coef"], 0.05);
  EXPECT_EQ(effective(keys)["router_aux_loss_coef"], 0.5);
  EXPECT_EQ(effective(keys)["num_local_experts"], 6);
  EXPECT_EQ(open(keys).spec->facts().max_positions, 512);
  EXPECT_THAT(warnings_, IsEmpty());
  const std::string own = open("").origin.files.at("config.json");
  EXPECT_EQ(open(keys).origin.files.at("config.json"), own);
  auto exported = nlohmann::json::parse(own);
  exported["router_aux_loss_coef"] = 0.5;
  exported["max_position_embeddings"] = 512;
  EXPECT_EQ(nlohmann::json::parse(open(keys + "\n  export_config: true").origin.files.at("config.json")),
            exported);
}

TEST_F(Overridden, ReplacesAMapByAMap) {
  const auto rope = effective("config: {rope_parameters: {rope_type: linear, factor: 2.0, rope_theta: 7.0}}");
  EXPECT_EQ(rope["rope_parameters"]["factor"], 2.0);
  EXPECT_EQ(rope["rope_parameters"]["rope_theta"], 7.0);
}

// Defaults of nemo_automodel/components/models/TYPE/model.py, which transformers and its other modules do not
// have.
TEST_F(Overridden, TakesTheRoutersOfAnAutoModelRecipe) {
  const std::string loss = R"({"router_aux_loss_type": "layer"})";
  for (const char* with_loss :
       {"qwen3_moe", "gpt_oss", "qwen3_next", "qwen3_5_moe", "ernie4_5_moe", "laguna"}) {
    EXPECT_EQ(of_automodel(with_loss), loss) << with_loss;
    EXPECT_THAT(warnings_, IsEmpty()) << with_loss;
  }
  for (const char* with_update : {"deepseek_v3", "deepseek_v32", "glm_moe_dsa"})
    EXPECT_EQ(of_automodel(with_update), R"({"gate_bias_update_factor": 0.001})") << with_update;
  EXPECT_THAT(warnings_, IsEmpty());
  for (const char* other : {"llama", "mixtral", "qwen2_moe", "glm4_moe", "minimax_m2", "nemotron_h_moe"})
    EXPECT_EQ(of_automodel(other), "") << other;
  EXPECT_EQ(of_automodel("qwen3_moe", "force_hf: true"), "");
  EXPECT_EQ(of_automodel("qwen3_moe", "config: {router_aux_loss_type: none}"),
            R"({"router_aux_loss_type": null})");
  EXPECT_EQ(of_automodel("qwen3_moe", "config: {router_aux_loss_coef: 0.0}"),
            R"({"router_aux_loss_coef": 0.0})");
  EXPECT_EQ(of_automodel("deepseek_v3", "backend: {fake_balanced_gate: true}"),
            R"({"fake_balanced_gate": true})");
}

TEST_F(Overridden, WarnsOfHeadsThatAutoModelTrains) {
  use("qwen3_5_tied");
  set("mtp_num_hidden_layers", 1);
  const auto warned = [&](const std::string& more) {
    const Recipe recipe = read_recipe(
        config::read_text("model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
                          "  pretrained_model_name_or_path: " +
                              (folder_ / "model").string() + "\n" + more,
                          "run.yaml"));
    warnings_.clear();
    (void)with_recipe_keys(recipe.model, plugins_, warnings_);
    return warnings_;
  };
  EXPECT_THAT(warned(""), ElementsAre("run.yaml:1 model: AutoModel also trains the multi-token prediction "
                                      "heads of this model (mtp_num_hidden_layers 1), which heddle does not "
                                      "support: the model trains on the next token only, "
                                      "as with num_nextn_predict_layers: 0"));
  EXPECT_THAT(warned("  num_nextn_predict_layers: 0\n"), IsEmpty());
}

// Keys of a model of text and images apply to its text model.
TEST_F(Overridden, KeysApplyToTheTextModelOfAMultimodalModel) {
  use("qwen3_5_moe");
  std::ifstream in(folder_ / "model/config.json");
  const nlohmann::ordered_json whole = {{"model_type", "qwen3_5_moe"},
                                        {"text_config", nlohmann::ordered_json::parse(in)}};
  folder_.write("model/config.json", whole.dump());
  const std::string keys = "config: {router_aux_loss_coef: 0.5}";
  EXPECT_EQ(effective(keys)["router_aux_loss_coef"], 0.5);
  EXPECT_THAT(warnings_, IsEmpty());
  const auto exported =
      nlohmann::json::parse(open(keys + "\n  export_config: true").origin.files.at("config.json"));
  EXPECT_EQ(exported["text_config"]["router_aux_loss_coef"], 0.5);
}

TEST_F(Overridden, CanDropMultiTokenPredictionHeads) {
  use("nemotron_h_mtp");
  const auto parameters = [&](const std::string& more) {
    size_t count = 0;
    for (const auto& unit : open(more).make()) count += unit->parameters().size();
    return count;
  };
  EXPECT_LT(parameters("config: {num_nextn_predict_layers: 0}"), parameters(""));
}

// A coefficient has an effect only if a loss is computed.
TEST_F(Overridden, WarnsOfAKeyThatOtherKeysDisable) {
  set("output_router_logits", false);
  const PreparedModel model = open("config: {router_aux_loss_coef: 0.5, max_position_embeddings: 512}");
  EXPECT_THAT(warnings_,
              ElementsAre("run.yaml:3 model.config.router_aux_loss_coef has no effect: no auxiliary loss is "
                          "computed; set router_aux_loss_type to layer, sequence, global or model"));
  EXPECT_THAT(model.idle_keys, ElementsAre("router_aux_loss_coef"));
  open("config: {router_aux_loss_coef: 0.5, router_aux_loss_type: layer}");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(Overridden, ExportsKeysThatTheFilesNeed) {
  set("attention_dropout", 0.1);
  EXPECT_THAT(
      refusal("config: {attention_dropout: 0.0}"),
      HasSubstr(
          "run.yaml:3 model.config: FOLDER/model/config.json cannot be read without these keys, "
          "and neither could the model that the run exports: FOLDER/model/config.json attention_dropout: "
          "only attention_dropout: 0.0 is built, got 0.1\n  hint: set model.export_config: true"));
  const PreparedModel model = open("config: {attention_dropout: 0.0}\n  export_config: true");
  EXPECT_EQ(nlohmann::json::parse(model.origin.files.at("config.json"))["attention_dropout"], 0.0);
}

}  // namespace
}  // namespace heddle
