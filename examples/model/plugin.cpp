// The model family GPT-2, and the plugin's entry point.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "heddle/sdk.h"
#include "units.h"

namespace gpt2 {
namespace {

constexpr std::string_view kPrefix = "transformer.";

// Files store the weights of Conv1D layers as [in, out].
bool is_conv(const std::string& parameter) {
  for (const char* ending : {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"})
    if (parameter.ends_with(ending)) return true;
  return false;
}

class Spec : public heddle::ModelSpec {
 public:
  explicit Spec(Config config) : config_(std::move(config)) {}

  heddle::ModelFacts facts() const override {
    return {"gpt2", config_.vocab_size, config_.n_positions, config_.dtype,
            "n_positions: each position has a learned vector"};
  }
  heddle::Units make_units(const at::TensorOptions& options) const override {
    return gpt2::make_units(config_, options);
  }
  std::map<std::string, std::string> signature() const override {
    return {{"model_type", "gpt2"},
            {"vocab_size", std::to_string(config_.vocab_size)},
            {"n_positions", std::to_string(config_.n_positions)},
            {"n_embd", std::to_string(config_.n_embd)},
            {"n_layer", std::to_string(config_.n_layer)},
            {"n_head", std::to_string(config_.n_head)},
            {"n_inner", std::to_string(config_.n_inner)},
            {"tie_word_embeddings", config_.tie_word_embeddings ? "true" : "false"}};
  }
  std::string config_json(const std::string& dtype) const override { return to_json(config_, dtype); }

  // Six operations per weight of a product, and attention over half of the positions, because of the causal
  // mask.
  double flops_per_token(int64_t sequence) const override {
    const auto width = static_cast<double>(config_.n_embd);
    const double layer = 4 * width * width + 2 * width * static_cast<double>(config_.n_inner) +
                         width * static_cast<double>(sequence);
    return 6 *
           (static_cast<double>(config_.n_layer) * layer + width * static_cast<double>(config_.vocab_size));
  }

  heddle::StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const override {
    if (!is_conv(parameter)) return {};
    return heddle::stored::transposed(heddle::stored::whole(parameter, shape));
  }
  // Files older than 2023 have no prefix. A tied head may be stored under the head's name.
  std::vector<std::string> other_names(const std::string& tensor) const override {
    std::vector<std::string> others;
    if (tensor.starts_with(kPrefix)) others.push_back(tensor.substr(kPrefix.size()));
    if (tensor == "transformer.wte.weight" && config_.tie_word_embeddings)
      others.emplace_back("lm_head.weight");
    return others;
  }
  // Old files contain masks in addition to the weights.
  bool passes_over(const std::string& tensor) const override {
    return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias");
  }

 private:
  Config config_;
};

class Family : public heddle::IModelFamily {
 public:
  std::unique_ptr<heddle::ModelSpec> read(const heddle::Node& keys,
                                          heddle::UnknownKeys unknown) const override {
    return std::make_unique<Spec>(gpt2::read(keys, unknown));
  }
};

}  // namespace
}  // namespace gpt2

HEDDLE_PLUGIN("gpt2", "0.1.0", "model gpt2") {
  plugin.model<gpt2::Family>("gpt2", gpt2::keys());
}
