// A family of models by its description: keys, layers, files. The library makes the rest of it.
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

// The rotary embedding, in both spellings of Hugging Face: rope_theta and rope_scaling, or rope_parameters.
struct RotaryKeys {
  double theta = 10000.0;
  RotaryScaling scaling = {};
  double part = 1.0;      // partial_rotary_factor: the part of each head that is rotated, its first numbers
  double query_beta = 0;  // llama_4_scaling_beta: see QueryScaling, over the scaling's original positions
  bool of_whole_head = false;            // rope_type proportional: see Rotation
  int64_t dim(int64_t head_dim) const {  // as transformers rounds it
    const double dim = static_cast<double>(head_dim) * part;
    return of_whole_head ? 2 * static_cast<int64_t>(dim / 2) : static_cast<int64_t>(dim);
  }
  Rotation rotation(int64_t head_dim) const { return {dim(head_dim), theta, scaling, false, of_whole_head}; }
};

// What read_rotary must know of the model.
struct RotaryUse {
  std::string model_type;
  int64_t head_dim = 0, max_positions = 0;
  bool partial = false;         // partial_rotary_factor acts
  bool scaled_queries = false;  // llama_4_scaling_beta of rope_parameters acts
  bool proportional = false;    // the type proportional is built
};

// The words of layer_types.
inline constexpr const char* kFullAttention = "full_attention";
inline constexpr const char* kSlidingAttention = "sliding_attention";

// Changes what the keys give. Throws Error{config} at a type that is not built, or an impossible number.
HEDDLE_API void read_rotary(const Node& keys, RotaryKeys& rotary, const RotaryUse& use);
// Throws Error{config} where these values make a frequency that is not a number: yarn with rope_theta 1,
// where transformers divides by zero.
HEDDLE_API void check_rotary(const Node& keys, const RotaryKeys& rotary, int64_t head_dim);
// rope_parameters: a map that transformers reads back.
HEDDLE_API Node rotary_map(const RotaryKeys& rotary, bool partial);
HEDDLE_API std::vector<Node::Entry> rotary_entries(const RotaryKeys& rotary, bool partial);
HEDDLE_API std::vector<FieldInfo> rotary_table(const RotaryKeys& defaults, bool partial);

// The same where layers that slide rotate by another base (Gemma 3): `rotary` is of layers with full
// attention; rope_local_base_freq, or rope_parameters with a map for each word of layer_types.
HEDDLE_API void read_rotary_by_type(const Node& keys, RotaryKeys& rotary, RotaryKeys& sliding,
                                    const RotaryUse& use);
HEDDLE_API std::vector<Node::Entry> rotary_entries_by_type(const RotaryKeys& rotary,
                                                           const RotaryKeys& sliding);
HEDDLE_API std::vector<FieldInfo> rotary_table_by_type(const RotaryKeys& rotary, const RotaryKeys& sliding);

// A family derives its struct from it, and sets its own defaults in the constructor.
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
  std::string complaint() const;            // what is impossible; empty: nothing
  std::string complaint_of_latent() const;  // other heads of keys than of queries

  // A padding token that is the default of the family, in a vocabulary that has no such token.
  void drop_default_padding(const CommonKeys& defaults);
  void fill_head_dim();  // with head_width(), where the heads divide hidden_size

  // What these keys say of the model; a family changes what differs. The model has no layers yet.
  Norm norm() const { return {.eps = rms_norm_eps}; }
  Attention attention() const;
  Mlp mlp(Activation activation = Activation::silu) const;
  Model model() const;
  Model model(Layer each) const;  // with num_hidden_layers of it
};

inline constexpr Range<int64_t> kSize{1, model::kLargestSize};

// What the common keys mean in a family.
struct CommonForm {
  const char* mlp = "Width of the MLP.";  // intermediate_size; null: no layer has an MLP of this width
  bool padding = true;                    // false: the padding's row of the embedding is like any other
  bool latent = false;                    // latent attention, which has as many heads of keys as of queries
  bool one_key_head = false;              // attention whose heads of queries share one of keys
};

// Those of CommonKeys but the rotary embedding. A default pad_token_id beyond the vocabulary is none.
template <class Keys>
model::ModelKeys<Keys> common_keys(const CommonForm& form = {}) {
  using Common = CommonKeys;
  model::ModelKeys<Keys> keys;
  keys.field("vocab_size", &Common::vocab_size, "Tokens.", kSize)
      .field("hidden_size", &Common::hidden_size, "Width of the hidden states.", kSize);
  if (form.mlp != nullptr)
    keys.field("intermediate_size", &Common::intermediate_size, form.mlp, kSize);
  else
    keys.unused("intermediate_size", "No layer has an MLP of this width: it changes nothing.");
  keys.field("num_hidden_layers", &Common::num_hidden_layers, "Decoder layers.",
             Range<int64_t>{1, model::kMostLayers})
      .field("num_attention_heads", &Common::num_attention_heads, "Heads of queries.", kSize)
      .field("num_key_value_heads", &Common::num_key_value_heads,
             form.latent ? "Another name of num_attention_heads, as latent attention has as many of each."
             : form.one_key_head ? "1, which all heads of queries share: it changes nothing."
                                 : "Heads of keys and values; null: as many as of queries.",
             kSize)
      .field("max_position_embeddings", &Common::max_position_embeddings, "Longest sequence.", kSize)
      .field("initializer_range", &Common::initializer_range, "Standard deviation of random weights.",
             at_least(0.0))
      .field("tie_word_embeddings", &Common::tie_word_embeddings,
             "The head computes with the embedding's weight.");
  if (form.padding)
    keys.field("pad_token_id", &Common::pad_token_id,
               "Its row of the embedding gets no gradient from the look-up; below 0: counted from the end.");
  else
    keys.unused("pad_token_id", "The padding's row is like any other: it changes nothing.");
  keys.field("dtype", &Common::dtype, "Of the stored weights.")
      .field("torch_dtype", &Common::torch_dtype, "The older name of dtype.")
      .then([](Keys& given) { given.drop_default_padding(Keys()); })
      .rule([latent = form.latent](const Keys& given) {
        const std::string heads = latent ? given.complaint_of_latent() : "";
        return heads.empty() ? given.complaint() : heads;
      })
      .only("quantization_config", Node(),
            "Refused; files in fp8 or mxfp4 are dequantized when they are read.");
  return keys;
}

// head_dim, for families that have the key. written: also where it is null, which transformers may not take.
template <class Keys>
void add_head_dim(model::ModelKeys<Keys>& keys, bool written = false) {
  keys.field("head_dim", &CommonKeys::head_dim, "Width of a head; null: hidden_size / num_attention_heads.",
             kSize);
  if (written) keys.then([](Keys& given) { given.fill_head_dim(); });
}

template <class Keys>
void add_rms_norm(model::ModelKeys<Keys>& keys) {
  keys.field("rms_norm_eps", &CommonKeys::rms_norm_eps, "Added under the root of each norm.",
             at_least(1e-38));
}

// Throws Error{config} at a key of the map that is close to one of `known`; other unknown ones pass.
HEDDLE_API void refuse_misspelt(const Node& map, std::span<const std::string> known);

// What of the rotary embedding acts in a family.
struct RotaryForm {
  bool partial = false, scaled_queries = false;
};

// The keys of the rotary embedding.
template <class Keys>
void add_rotary(model::ModelKeys<Keys>& keys, const std::string& model_type, RotaryForm form = {}) {
  model::KeyGroup<Keys> group;
  const bool partial = form.partial;
  group.table = rotary_table(Keys().rotary, partial);
  group.read = [model_type, form](const Node& given, Keys& out) {
    const RotaryUse use{model_type, out.head_width(), out.max_position_embeddings, form.partial,
                        form.scaled_queries};
    read_rotary(given, out.rotary, use);
    check_rotary(given, out.rotary, use.head_dim);
  };
  group.write = [partial](const Keys& of) { return rotary_entries(of.rotary, partial); };
  keys.group(std::move(group));
}

// The same of a family whose layers that slide rotate by `Keys::sliding_rotary`.
template <class Keys>
void add_rotary_by_type(model::ModelKeys<Keys>& keys, const std::string& model_type) {
  model::KeyGroup<Keys> group;
  group.table = rotary_table_by_type(Keys().rotary, Keys().sliding_rotary);
  group.read = [model_type](const Node& given, Keys& out) {
    const RotaryUse use{model_type, out.head_width(), out.max_position_embeddings};
    read_rotary_by_type(given, out.rotary, out.sliding_rotary, use);
    for (const RotaryKeys* one : {&out.rotary, &out.sliding_rotary}) check_rotary(given, *one, use.head_dim);
  };
  group.write = [](const Keys& of) { return rotary_entries_by_type(of.rotary, of.sliding_rotary); };
  keys.group(std::move(group));
}

// The keys of dropout by their names in config.json; null: the family has none.
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
  add(names.attention, &CommonKeys::attention_dropout, "In training, of the softmax's weights; 0: none.");
  add(names.residual, &CommonKeys::residual_dropout,
      "In training, of what attention and MLP add to the hidden states; 0: none.");
  add(names.embedding, &CommonKeys::embedding_dropout, "In training, of the embeddings; 0: none.");
}

// time_step_limit, the range to which Mamba-2 cuts its steps; without the key the values stay. Throws
// Error{config} at it.
HEDDLE_API void read_step_limit(const Node& keys, double& shortest, double& longest);
HEDDLE_API std::vector<Node::Entry> step_limit_entry(double shortest, double longest);
HEDDLE_API FieldInfo step_limit_info();

// For keys with the members shortest_step and longest_step.
template <class Keys>
model::KeyGroup<Keys> step_limit() {
  model::KeyGroup<Keys> out;
  out.table = {step_limit_info()};
  out.read = [](const Node& given, Keys& keys) {
    read_step_limit(given, keys.shortest_step, keys.longest_step);
  };
  out.write = [](const Keys& of) { return step_limit_entry(of.shortest_step, of.longest_step); };
  return out;
}

// The words of transformers for the activations that are built.
HEDDLE_API const OneOf& activation_words();
HEDDLE_API Activation activation_of(const std::string& word);

// The words of router_aux_loss_type, and the loss of each; no word: none.
HEDDLE_API const OneOf& balance_words();
HEDDLE_API model::BalanceLoss::Form balance_form(const std::optional<std::string>& word);

// layer_types: full_attention or sliding_attention for each layer. What is wrong with it; empty: nothing.
HEDDLE_API std::string complaint_of_layer_types(const std::optional<std::vector<std::string>>& types,
                                                int64_t layers);

// One model, as read from its keys.
struct ReadModel {
  ModelFacts facts = {};
  Model model = {};
  Files files = {};
  std::map<std::string, std::string> signature = {};
  std::map<std::string, std::string> idle = {};  // ModelSpec::idle_keys()
  std::function<std::string(const std::string& dtype)> config_json = {};
};

// Styles of the modules for the axis tp, which the units bring. Experts and their routers stay whole; so do
// latent attention, whose heads share a key, attention with norms over all heads at once, and a head with a
// bias.
HEDDLE_API TensorPlan tensor_plan(const Model& model);

// The units with their plan for tensor parallelism, the operations of a token, the tensors of files.
HEDDLE_API std::unique_ptr<ModelSpec> make_spec(ReadModel read);

// What a family declares. Keys: a struct derived from CommonKeys (heddle/decoder/keys.h).
template <class Keys>
struct Description {
  std::string model_type;    // in config.json
  std::string architecture;  // transformers' class
  model::ModelKeys<Keys> keys;
  Model (*model)(const Keys& keys);
  Files files = {};
  // Rules that follow from the keys, in place of `files`; null: none.
  Files (*files_of)(const Keys& keys) = nullptr;
  double (*benchmark)(const BenchmarkSizes& sizes) = nullptr;  // ModelFacts::benchmark
  std::vector<Node::Entry> automodel_keys = {};                // IModelFamily::automodel_keys()
};

// The auxiliary loss of each layer, with the coefficient of config.json, and the update of the bias that
// chooses experts: what NeMo AutoModel's modules add to a router (its components/models, at 36044ad3).
HEDDLE_API std::vector<Node::Entry> automodel_loss();
HEDDLE_API std::vector<Node::Entry> automodel_bias_update();

// The family of a description, for Offer::model: plugin.model<Family<phi3>>("phi3", phi3().keys), where
// `const Description<Keys>& phi3()` returns the same one always.
template <auto description>
class Family : public IModelFamily {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override {
    const auto& of = description();
    const auto given = of.keys.read(keys, unknown);
    ReadModel out;
    out.facts = {of.model_type, given.vocab_size, given.max_position_embeddings, given.stored_dtype()};
    out.facts.benchmark = of.benchmark;
    out.model = of.model(given);
    if (out.model.positions > 0) out.facts.positions_reason = "each position has a learned vector";
    out.files = of.files_of == nullptr ? of.files : of.files_of(given);
    out.signature = of.keys.signature(given, of.model_type);
    out.config_json = [given](const std::string& dtype) {
      const auto& written = description();
      return written.keys.config_json(given, written.model_type, written.architecture, dtype);
    };
    return make_spec(std::move(out));
  }
  std::vector<Node::Entry> automodel_keys(const std::string&) const override {
    return description().automodel_keys;
  }
};

}  // namespace heddle::decoder
