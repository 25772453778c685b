// Random configurations of every family: an accepted model is trained for a step, exported, read back, and
// gives equal logits. HEDDLE_RANDOM_CONFIGS=30 tries 30 of each family.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/remainder.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "checkpoint/folder.h"
#include "core/parallel/single.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "heddle/mesh/call.h"
#include "lib/checkpoint/huggingface/export.h"
#include "plugins/compositions/draw.h"

namespace heddle::tests {
namespace {

constexpr int kFewConfigs = 2, kMostTries = 1000;  // per accepted configuration

// Draws small sizes for keys of the type.
std::string small_size(const std::string& key, Draw& draw) {
  const auto of = [&](std::initializer_list<int> values) { return std::to_string(draw.of(values)); };
  if (key == "vocab_size") return of({31, 48});
  if (key == "hidden_size" || key == "n_embd") return of({8, 12, 16, 24});
  if (key == "num_hidden_layers" || key == "n_layer") return of({1, 2, 3});
  if (key == "num_attention_heads" || key == "n_head") return of({2, 4});
  if (key == "num_key_value_heads") return of({1, 2, 4});
  if (key == "head_dim" || key == "qk_rope_head_dim") return of({2, 4, 6, 8, 10});
  if (key == "num_experts" || key == "n_routed_experts" || key == "num_local_experts") return of({4, 8});
  if (key == "moe_k" || key.starts_with("num_experts_per_tok")) return of({1, 2, 3});
  if (key == "index_topk" || key == "index_n_heads") return of({2, 3, 5});
  if (key == "index_head_dim") return of({8, 10, 12});
  if (key == "max_position_embeddings" || key == "n_positions") return "64";
  if (key.ends_with("dropout") || key.ends_with("pdrop")) return "0.0";  // see tests/plugins/dense
  if (key == "linear_head_dim" || key == "linear_num_heads") return of({2, 3});
  if (key == "rope_theta") return of({1, 100, 10000});
  if (key == "n_group") return of({1, 2});
  if (key == "topk_group" || key == "first_k_dense_replace") return of({1, 1, 2});
  for (const char* width : {"intermediate_size", "lora_rank", "nope_head_dim", "v_head_dim"})
    if (key.find(width) != key.npos) return of({3, 5, 8});
  return "";
}

// Draws values of all other keys. Empty: the key is absent.
std::string any_value(const FieldInfo& field, Draw& draw) {
  if (!draw.one_in(3)) return "";
  if (field.type.starts_with("bool")) return draw.one_in(2) ? "true" : "false";
  if (field.type.starts_with("int")) return std::to_string(draw.of({0, 1, 2, 3, 4}));
  if (field.type.starts_with("float") || field.type.starts_with("number"))
    return draw.of({"0.0", "0.01", "0.25", "0.5", "1.0", "3.0"});
  return "";
}

// Returns true for keys that must equal another key.
bool repeats(const std::string& key) {
  for (const char* name : {"expert_hidden_dim", "moe_num_experts", "moe_top_k", "share_expert_dims",
                           "num_attention_groups", "layernorm_epsilon"})
    if (key == name) return true;
  return key.starts_with("swa_") && key != "swa_rope_theta";
}

std::string draw_config(const std::vector<FieldInfo>& fields, const std::string& type, Draw& draw) {
  std::string out = "{model_type: " + type + ", initializer_range: 0.2";
  bool counted = false;  // several keys are names of the number of experts
  for (const FieldInfo& field : fields) {
    if (field.key == "model_type" || field.key == "initializer_range") continue;
    if (repeats(field.key)) continue;
    if (field.range == "null") continue;  // ModelKeys::only with null: every value is refused
    const bool count =
        field.key == "num_experts" || field.key == "n_routed_experts" || field.key == "num_local_experts";
    if (count && std::exchange(counted, true)) continue;
    std::string value = small_size(field.key, draw);
    if (value.empty()) value = any_value(field, draw);
    if (field.key == "head_dim" && draw.one_in(3)) value.clear();
    if (!value.empty()) out += ", " + field.key + ": " + value;
  }
  return out + "}";
}

struct Alone {
  AloneRendezvous rendezvous;
  DeviceMesh mesh = mesh::build(std::array<Axis, 1>{Axis{"dp", 1}}, rendezvous, "random");
  Stages build(const ModelSpec& model, const ParameterSource& source) {
    Plan plan;
    plan.strategy = parallel::make_single();
    return parallel::build(model.make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat)), plan, mesh,
                           source, 42);
  }
};

Batch tokens_of(int64_t vocabulary) {
  Batch batch;
  batch.tokens = at::arange(18, at::kLong).mul(7).remainder(vocabulary).view({2, 9});
  return batch;
}

at::Tensor logits(Stages& stages, int64_t vocabulary) {
  const at::NoGradGuard no_gradients;
  return stages[0]->forward({}, tokens_of(vocabulary))[0];
}

void export_to(const Folder& folder, Alone& alone, Stages& stages,
               const std::shared_ptr<const ModelSpec>& model) {
  std::vector<checkpoint::Part> parts;
  for (const Shard& shard : stages[0]->owned())
    parts.push_back({shard.name, shard.tensor.detach(), shard.tensor.sizes().vec(), shard.offset});
  checkpoint::HfExport what;
  what.sharded = folder / "model";
  what.directory = folder / "out";
  what.model = model;
  what.origin.files["config.json"] = model->config_json("float32");
  std::filesystem::create_directories(what.sharded);
  checkpoint::write_sharded(what.sharded, "model", parts, alone.rendezvous, "save");
  checkpoint::export_hf(what, alone.rendezvous, "final");
}

void expect_read_back(const std::shared_ptr<const ModelSpec>& model, PluginRegistry& plugins) {
  const int64_t vocabulary = model->facts().vocabulary;
  Alone first, second;
  Stages trained = first.build(*model, {});
  Batch batch = tokens_of(vocabulary);
  batch.labels = batch.tokens;
  StepConfig config;
  config.optimizer = {1e-2, 0.9, 0.95, 1e-8, 0.1};
  Step(trained, first.mesh, config).run(std::span(&batch, 1), 1e-2, 0.1);
  const Folder folder;
  export_to(folder, first, trained, model);
  const auto again = engine::read_model(folder / "out" / "config.json", plugins);
  const auto weights = std::make_shared<HfWeights>(folder / "out");
  Stages read = second.build(*again, checkpoint::hf_source(folder / "out", weights, again));
  EXPECT_TRUE(at::equal(logits(trained, vocabulary), logits(read, vocabulary)));
}

constexpr const char* kKimiK3 = "kimi_linear, architectures: [KimiK3ForCausalLM]";

// Returns the keys that it shares with Kimi Linear, and its own.
std::vector<FieldInfo> keys_of_k3(std::vector<FieldInfo> fields, const std::vector<FieldInfo>& own) {
  std::erase_if(fields, [](const FieldInfo& field) {
    for (const char* key : {"attention_bias", "num_local_experts", "num_experts_per_tok", "n_shared_experts",
                            "n_group", "norm_topk_prob"})
      if (field.key == key) return true;
    return false;
  });
  for (const FieldInfo& field : own) {
    const auto same = [&](const FieldInfo& other) { return other.key == field.key; };
    if (field.type != "map" && std::none_of(fields.begin(), fields.end(), same)) fields.push_back(field);
  }
  return fields;
}

std::vector<FieldInfo> keys_of(PluginRegistry& plugins, const std::string& type) {
  if (type == kKimiK3)
    return keys_of_k3(plugins.model("kimi_linear")->fields, plugins.model("kimi_k3")->fields);
  return plugins.model(type)->fields;
}

class RandomConfigs : public ::testing::TestWithParam<std::string> {};

TEST_P(RandomConfigs, RoundTripWhenAccepted) {
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  const char* more = std::getenv("HEDDLE_RANDOM_CONFIGS");
  const int count = more != nullptr ? std::stoi(more) : kFewConfigs;
  const std::vector<FieldInfo> fields = keys_of(plugins, GetParam());
  const auto is_text = [](const FieldInfo& field) { return field.key == "text_config"; };
  if (std::any_of(fields.begin(), fields.end(), is_text)) return;  // the family of the text model is drawn
  int accepted = 0;
  std::string refusal;
  for (int seed = 1; accepted < count && seed <= count * kMostTries; ++seed) {
    Draw draw(static_cast<uint64_t>(seed));
    const std::string config = draw_config(fields, GetParam(), draw);
    SCOPED_TRACE(config);
    std::shared_ptr<const ModelSpec> model;
    try {
      model = engine::read_model(config::read_text(config, "run.yaml"), plugins, UnknownKeys::refused);
      model->make_units(at::TensorOptions(at::kMeta));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::config) << error.what();
      EXPECT_EQ(error.message().find("could not be read again"), std::string::npos) << error.what();
      refusal = error.what();
      continue;
    }
    ++accepted;
    expect_read_back(model, plugins);
  }
  EXPECT_EQ(accepted, count) << "the last refusal: " << refusal;
}

// Returns every model_type that a plugin offers, except one whose keys another table completes, and one that
// needs a list of maps.
std::vector<std::string> families() {
  const PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  std::vector<std::string> out = plugins.names("model");
  std::erase_if(out, [](const std::string& type) { return type == "kimi_k3" || type == "nemotron-nas"; });
  return out;
}

INSTANTIATE_TEST_SUITE_P(Families, RandomConfigs, ::testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Architectures, RandomConfigs, ::testing::Values(kKimiK3),
                         [](const auto&) { return "kimi_k3"; });

}  // namespace
}  // namespace heddle::tests
