// Declares a model family by its keys, layers and files. The library derives ModelSpec and IModelFamily.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"
#include "heddle/decoder/files.h"
#include "heddle/model/config_keys.h"
#include "heddle/model/family.h"
#include "heddle/model/stored.h"

namespace heddle::decoder {

// Rotary embedding from Hugging Face keys, either rope_theta and rope_scaling or rope_parameters.
struct RotaryKeys {
  double theta = 10000.0;
  RotaryScaling scaling = {};
  double part = 1.0;  // partial_rotary_factor: the fraction of each head that is rotated, from its beginning
  double query_beta = 0;       // llama_4_scaling_beta: see QueryScaling, whose length is original_positions
  bool of_whole_head = false;  // rope_type proportional: see Rotation
  int64_t dim(int64_t head_dim) const {  // rounded as in transformers
    const double dim = static_cast<double>(head_dim) * part;
    return of_whole_head ? 2 * static_cast<int64_t>(dim / 2) : static_cast<int64_t>(dim);
  }
  Rotation rotation(int64_t head_dim) const { return {dim(head_dim), theta, scaling, false, of_whole_head}; }
};

// Facts about the model for read_rotary().
struct RotaryUse {
  std::string model_type;
  int64_t head_dim = 0, max_positions = 0;
  bool partial = false;         // whether partial_rotary_factor applies
  bool scaled_queries = false;  // whether llama_4_scaling_beta of rope_parameters applies
  bool proportional = false;    // whether rope_type proportional is supported
};

// Values of layer_types.
inline constexpr const char* kFullAttention = "full_attention";
inline constexpr const char* kSlidingAttention = "sliding_attention";

// Reads the rotary keys into `rotary`. Throws Error{config} at an unsupported type or an invalid number.
HEDDLE_API void read_rotary(const Node& keys, RotaryKeys& rotary, const RotaryUse& use);
// Throws Error{config} if a frequency would not be a number: yarn with rope_theta 1 divides by zero in
// transformers.
HEDDLE_API void check_rotary(const Node& keys, const RotaryKeys& rotary, int64_t head_dim);
// Returns rope_parameters as a map that transformers reads.
HEDDLE_API Node rotary_map(const RotaryKeys& rotary, bool partial);
HEDDLE_API std::vector<Node::Entry> rotary_entries(const RotaryKeys& rotary, bool partial);
HEDDLE_API std::vector<FieldInfo> rotary_table(const RotaryKeys& defaults, bool partial);

// Functions like these for families whose sliding layers have another rotary base (Gemma 3). `rotary` applies
// to layers with full attention. The keys are rope_local_base_freq, or rope_parameters with one map per layer
// type.
HEDDLE_API void read_rotary_by_type(const Node& keys, RotaryKeys& rotary, RotaryKeys& sliding,
                                    const RotaryUse& use);
HEDDLE_API std::vector<Node::Entry> rotary_entries_by_type(const RotaryKeys& rotary,
                                                           const RotaryKeys& sliding);
HEDDLE_API std::vector<FieldInfo> rotary_table_by_type(const RotaryKeys& rotary, const RotaryKeys& sliding);

// Keys that most families have. A family derives its struct from it and sets its own defaults in the
// constructor.
struct HEDDLE_API CommonKeys {
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008;
  int64_t num_hidden_layers = 32, num_attention_heads = 32;
  std::optional<int64_t> num_key_value_heads, head_dim;
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6, initializer_range = 0.02;
  double attention_dropout = 0, residual_dropout = 0, embedding_dropout = 0;
  bool tie_word_embeddings = false;
  std::optional<int64_t> pad_token_id;
  DTypeWord dtype, torch_dtype;
  RotaryKeys rotary;

  int64_t head_width() const { return head_dim.value_or(hidden_size / num_attention_heads); }
  std::string stored_dtype() const { return dtype.word.empty() ? torch_dtype.word : dtype.word; }
  std::string complaint() const;            // the error for an invalid combination; empty if valid
  std::string complaint_of_latent() const;  // the error if key and query heads differ in number

  // Drops the family's default padding token if the vocabulary does not contain it.
  void drop_default_padding(const CommonKeys& defaults);
  void fill_head_dim();  // sets head_dim to head_width() if the heads divide hidden_size

  // Descriptions from these keys, which a family then modifies. The model has no layers yet.
  Norm norm() const { return {.eps = rms_norm_eps}; }
  Attention attention() const;
  Mlp mlp(Activation activation = Activation::silu) const;
  Model model() const;
  Model model(Layer each) const;  // has num_hidden_layers copies of the layer
};

// The range of sizes in config.json.
inline const Range<int64_t> kSize{1, model::kLargestSize};

// How a family uses the common keys.
struct CommonForm {
  // Help of intermediate_size; null: no layer has an MLP of this width.
  const char* mlp = "Width of the MLP.";
  bool padding = true;        // false: the embedding row of the padding token has a gradient
  bool latent = false;        // latent attention, which has as many key heads as query heads
  bool one_key_head = false;  // all query heads share one key head
};

// Declares the members of CommonKeys except the rotary embedding. A default pad_token_id beyond the
// vocabulary is dropped.
template <class Keys>
model::ModelKeys<Keys> common_keys(const CommonForm& form = {}) {
  using Common = CommonKeys;
  model::ModelKeys<Keys> keys;
  keys.field("vocab_size", &Common::vocab_size, "Vocabulary size.", kSize)
      .field("hidden_size", &Common::hidden_size, "Hidden size.", kSize);
  if (form.mlp != nullptr)
    keys.field("intermediate_size", &Common::intermediate_size, form.mlp, kSize);
  else
    keys.unused("intermediate_size", "Ignored: no layer has an MLP of this width.");
  keys.field("num_hidden_layers", &Common::num_hidden_layers, "Number of decoder layers.",
             Range<int64_t>{1, model::kMostLayers})
      .field("num_attention_heads", &Common::num_attention_heads, "Number of query heads.", kSize)
      .field("num_key_value_heads", &Common::num_key_value_heads,
             form.latent         ? "Alias of num_attention_heads, which it must equal."
             : form.one_key_head ? "Ignored: all query heads share one key-value head."
                                 : "Number of key-value heads. null: num_attention_heads.",
             kSize)
      .field("max_position_embeddings", &Common::max_position_embeddings, "Maximum sequence length.", kSize)
      .field("initializer_range", &Common::initializer_range, "Standard deviation of random weights.",
             at_least(0.0))
      .field("tie_word_embeddings", &Common::tie_word_embeddings,
             "Share the embedding's weight with the head.");
  if (form.padding)
    keys.field("pad_token_id", &Common::pad_token_id,
               "Token whose row of the embedding gets no gradient from the look-up. Negative ids count from "
               "the end.");
  else
    keys.unused("pad_token_id", "Ignored: the embedding row of the padding token is trained like any other.");
  keys.field("dtype", &Common::dtype, "Dtype of the stored weights.")
      .field("torch_dtype", &Common::torch_dtype, "Older name of dtype.")
      .then([](Keys& read) { read.drop_default_padding(Keys()); })
      .rule([latent = form.latent](const Keys& read) {
        const std::string heads = latent ? read.complaint_of_latent() : "";
        return heads.empty() ? read.complaint() : heads;
      })
      .only("quantization_config", Node(),
            "Refused. Files in fp8 or mxfp4 are dequantized when they are read.");
  return keys;
}

// Declares head_dim, for families that have the key. written: also write it if it is null, which transformers
// may not accept.
template <class Keys>
void add_head_dim(model::ModelKeys<Keys>& keys, bool written = false) {
  keys.field("head_dim", &CommonKeys::head_dim, "Head width. null: hidden_size / num_attention_heads.",
             kSize);
  if (written) keys.then([](Keys& read) { read.fill_head_dim(); });
}

template <class Keys>
void add_rms_norm(model::ModelKeys<Keys>& keys) {
  keys.field("rms_norm_eps", &CommonKeys::rms_norm_eps, "Epsilon added to the variance in each norm.",
             at_least(1e-38));
}

// Throws Error{config} at a key of the map that is similar to one of `known`. Other unknown keys are ignored.
HEDDLE_API void refuse_misspelt(const Node& map, std::span<const std::string> known);

// Rotary keys that apply in a family.
struct RotaryForm {
  bool partial = false, scaled_queries = false;
};

// Declares the keys of the rotary embedding.
template <class Keys>
void add_rotary(model::ModelKeys<Keys>& keys, const std::string& model_type, RotaryForm form = {}) {
  model::KeyGroup<Keys> group;
  const bool partial = form.partial;
  group.table = rotary_table(Keys().rotary, partial);
  group.read = [model_type, form](const Node& map, Keys& out) {
    const RotaryUse use{model_type, out.head_width(), out.max_position_embeddings, form.partial,
                        form.scaled_queries};
    read_rotary(map, out.rotary, use);
    check_rotary(map, out.rotary, use.head_dim);
  };
  group.write = [partial](const Keys& read) { return rotary_entries(read.rotary, partial); };
  keys.group(std::move(group));
}

// Declares the rotary keys of a family whose sliding layers use `Keys::sliding_rotary`.
template <class Keys>
void add_rotary_by_type(model::ModelKeys<Keys>& keys, const std::string& model_type) {
  model::KeyGroup<Keys> group;
  group.table = rotary_table_by_type(Keys().rotary, Keys().sliding_rotary);
  group.read = [model_type](const Node& map, Keys& out) {
    const RotaryUse use{model_type, out.head_width(), out.max_position_embeddings};
    read_rotary_by_type(map, out.rotary, out.sliding_rotary, use);
    for (const RotaryKeys* rotary : {&out.rotary, &out.sliding_rotary})
      check_rotary(map, *rotary, use.head_dim);
  };
  group.write = [](const Keys& read) { return rotary_entries_by_type(read.rotary, read.sliding_rotary); };
  keys.group(std::move(group));
}

// Names of the dropout keys in config.json. null: the family does not have the key.
struct DropoutKeys {
  const char* attention = "attention_dropout";
  const char* residual = nullptr;
  const char* embedding = nullptr;
};
template <class Keys>
void add_dropout(model::ModelKeys<Keys>& keys, DropoutKeys names = {}) {
  const auto add = [&](const char* key, double CommonKeys::*slot, const char* meaning) {
    if (key != nullptr) keys.field(key, slot, meaning, Range<double>{0, 1});
  };
  add(names.attention, &CommonKeys::attention_dropout,
      "Dropout of the attention weights in training. 0 disables it.");
  add(names.residual, &CommonKeys::residual_dropout,
      "Dropout of the outputs of attention and MLP in training. 0 disables it.");
  add(names.embedding, &CommonKeys::embedding_dropout,
      "Dropout of the embeddings in training. 0 disables it.");
}

// Reads time_step_limit, the range to which Mamba-2 clamps its steps. Without the key the values are
// unchanged. Throws Error{config} at the key.
HEDDLE_API void read_step_limit(const Node& keys, double& shortest, double& longest);
HEDDLE_API std::vector<Node::Entry> step_limit_entry(double shortest, double longest);
HEDDLE_API FieldInfo step_limit_info();

// Declares time_step_limit for keys with the members shortest_step and longest_step.
template <class Keys>
model::KeyGroup<Keys> step_limit() {
  model::KeyGroup<Keys> out;
  out.table = {step_limit_info()};
  out.read = [](const Node& map, Keys& keys) { read_step_limit(map, keys.shortest_step, keys.longest_step); };
  out.write = [](const Keys& read) { return step_limit_entry(read.shortest_step, read.longest_step); };
  return out;
}

// The activations that are supported, as transformers names them.
HEDDLE_API const OneOf& activation_words();
HEDDLE_API Activation activation_of(const std::string& word);

// The values of router_aux_loss_type, and the loss of each. No value: no loss.
HEDDLE_API const OneOf& balance_words();
HEDDLE_API model::BalanceLoss::Form balance_form(const std::optional<std::string>& word);

// Returns the error of layer_types, which must be full_attention or sliding_attention per layer; empty if
// valid.
HEDDLE_API std::string complaint_of_layer_types(const std::optional<std::vector<std::string>>& types,
                                                int64_t layers);

// A model read from its keys.
struct ReadModel {
  ModelFacts facts = {};
  Model model = {};
  Files files = {};
  std::map<std::string, std::string> signature = {};
  std::function<std::string(const std::string& dtype)> config_json = {};
};

// Returns the default plan of the axis tp. Experts and routers stay whole. So do latent attention, whose
// heads share a key, attention with a norm over all heads, and a head with a bias.
HEDDLE_API TensorPlan tensor_plan(const Model& model);

// Returns the ModelSpec: units with their tensor-parallel plan, operations per token, tensors of files.
HEDDLE_API std::unique_ptr<ModelSpec> make_spec(ReadModel read);

// The declaration of a family. Keys: a struct derived from CommonKeys.
template <class Keys>
struct Description {
  std::string model_type;    // model_type in config.json
  std::string architecture;  // class name in transformers
  model::ModelKeys<Keys> keys;
  Model (*model)(const Keys& keys);
  Files files = {};
  // Rules that depend on the keys, instead of `files`; null: `files`.
  Files (*files_of)(const Keys& keys) = nullptr;
  double (*benchmark)(const BenchmarkSizes& sizes) = nullptr;  // ModelFacts::benchmark
  std::vector<Node::Entry> automodel_keys = {};                // IModelFamily::automodel_keys()
  // ModelSpec::signature(), for families whose signature does not consist of the keys; null: all keys.
  std::map<std::string, std::string> (*signature)(const Keys& keys) = nullptr;
};

// Return the keys that NeMo AutoModel's modules add to a router: the auxiliary loss of each layer with the
// coefficient of config.json, and the update of the correction bias (its components/models, at 36044ad3).
HEDDLE_API std::vector<Node::Entry> automodel_loss();
HEDDLE_API std::vector<Node::Entry> automodel_bias_update();

// The family of a description, for Offer::model: plugin.model<Family<phi3>>("phi3", phi3().keys), where
// `const Description<Keys>& phi3()` always returns the same object.
template <auto description>
class Family : public IModelFamily {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override {
    const auto& family = description();
    const auto values = family.keys.read(keys, unknown);
    ReadModel out;
    out.facts = {family.model_type, values.vocab_size, values.max_position_embeddings, values.stored_dtype()};
    out.facts.benchmark = family.benchmark;
    out.model = family.model(values);
    if (out.model.positions > 0) out.facts.positions_reason = "each position has a learned vector";
    out.files = family.files_of == nullptr ? family.files : family.files_of(values);
    out.signature = family.signature == nullptr ? family.keys.signature(values, family.model_type)
                                                : family.signature(values);
    out.config_json = [values](const std::string& dtype) {
      const auto& written = description();
      return written.keys.config_json(values, written.model_type, written.architecture, dtype);
    };
    return make_spec(std::move(out));
  }
  std::vector<Node::Entry> automodel_keys(const std::string&) const override {
    return description().automodel_keys;
  }
};

}  // namespace heddle::decoder
