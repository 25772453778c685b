// The keys of Hugging Face configurations that any model may have.
#include "heddle/model/config_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::model {
namespace {

constexpr std::array<std::string_view, 36> kHarmless{"architectures",
                                                     "transformers_version",
                                                     "use_cache",
                                                     "bos_token_id",
                                                     "eos_token_id",
                                                     "sep_token_id",
                                                     "decoder_start_token_id",
                                                     "pretraining_tp",
                                                     "_name_or_path",
                                                     "name_or_path",
                                                     "auto_map",
                                                     "return_dict",
                                                     "output_hidden_states",
                                                     "output_attentions",
                                                     "torchscript",
                                                     "use_bfloat16",
                                                     "pruned_heads",
                                                     "chunk_size_feed_forward",
                                                     "is_encoder_decoder",
                                                     "is_decoder",
                                                     "add_cross_attention",
                                                     "cross_attention_hidden_size",
                                                     "tie_encoder_decoder",
                                                     "tokenizer_class",
                                                     "prefix",
                                                     "task_specific_params",
                                                     "problem_type",
                                                     "id2label",
                                                     "label2id",
                                                     "num_labels",
                                                     "finetuning_task",
                                                     "attn_implementation",
                                                     "_attn_implementation",
                                                     "_attn_implementation_autoset",
                                                     "unsloth_version",
                                                     "bad_words_ids"};

}  // namespace

void refuse(const Node& node, const std::string& message, const std::string& hint) {
  throw Error(ErrorCode::config, node.where(), message, hint);
}

const Node* given(const Node& keys, std::string_view key) {
  const Node* node = keys.find(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

int64_t integer_or(const Node& keys, std::string_view key, int64_t otherwise) {
  const Node* node = given(keys, key);
  return node == nullptr ? otherwise : node->as_integer();
}

double real_or(const Node& keys, std::string_view key, double otherwise) {
  const Node* node = given(keys, key);
  if (node == nullptr) return otherwise;
  const double value = node->as_real();
  if (!std::isfinite(value)) refuse(*node, "expected a finite number, got " + node->written());
  return value;
}

bool boolean_or(const Node& keys, std::string_view key, bool otherwise) {
  const Node* node = given(keys, key);
  return node == nullptr ? otherwise : node->as_boolean();
}

std::string text_or(const Node& keys, std::string_view key, const std::string& otherwise) {
  const Node* node = given(keys, key);
  return node == nullptr ? otherwise : node->as_text();
}

int64_t size_or(const Node& keys, std::string_view key, int64_t otherwise, int64_t most) {
  const int64_t size = integer_or(keys, key, otherwise);
  if (size < 1 || size > most) {
    const Node* node = given(keys, key);
    refuse(node == nullptr ? keys : *node,
           "expected a size from 1 to " + std::to_string(most) + ", got " + std::to_string(size));
  }
  return size;
}

void check_keys(const Node& keys, std::span<const FieldInfo> table, UnknownKeys unknown) {
  std::vector<std::string> known{"model_type"};
  for (const FieldInfo& field : table) known.push_back(field.key);
  Errors errors;
  for (const auto& [key, value] : keys.entries()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end()) continue;
    const std::string near = text::nearest(key, known);
    if (near.empty() && unknown != UnknownKeys::refused) continue;
    errors.attempt([&, &name = key, &node = value] {
      refuse(
          node, "unknown key '" + name + "'",
          near.empty() ? "the keys are those of a Hugging Face config.json" : "did you mean " + near + "?");
    });
  }
  errors.raise();
}

void check_only(const Node& keys, std::span<const OnlyValue> only) {
  Errors errors;
  const auto refuse_quantized = [](const Node& value) {
    const Node* method = value.is_map() ? given(value, "quant_method") : nullptr;
    const std::string name = method == nullptr ? "" : " (" + method->as_text() + ")";
    refuse(value, "quantized weights" + name + " are not built", "use the model's unquantized weights");
  };
  for (const auto& [key, value] : only) {
    const Node* node = given(keys, key);
    if (node == nullptr || *node == value) continue;
    errors.attempt([&, &name = key, &allowed = value] {
      if (name == "quantization_config") refuse_quantized(*node);
      refuse(*node, "only " + name + ": " + allowed.written() + " is built, got " + node->written(),
             allowed.is_null() ? "leave the key out" : "set " + name + ": " + allowed.written());
    });
  }
  errors.raise();
}

std::map<std::string, std::string> signature_of(const Node& values, const std::string& model_type) {
  constexpr std::array<std::string_view, 5> kLeftOut = {"max_position_embeddings", "initializer_range",
                                                        "dtype", "torch_dtype", "pad_token_id"};
  std::map<std::string, std::string> out = {{"model_type", model_type}};
  for (const auto& [key, value] : values.entries())
    if (std::find(kLeftOut.begin(), kLeftOut.end(), key) == kLeftOut.end()) out[key] = config::to_json(value);
  return out;
}

Node keys_of_table(const Node& keys, std::span<const FieldInfo> table) {
  std::vector<Node::Entry> entries;
  for (const auto& [key, value] : keys.entries()) {
    const auto field = std::find_if(table.begin(), table.end(),
                                    [&key = key](const FieldInfo& one) { return one.key == key; });
    if (field == table.end() || (value.is_null() && !field->type.ends_with(" or null"))) continue;
    entries.emplace_back(key, value);
  }
  return Node::map(std::move(entries), keys.mark(), keys.path());
}

std::string write_config_json(const Node& values, const std::string& model_type,
                              const std::string& architecture, const std::string& dtype) {
  std::vector<Node::Entry> entries;
  if (!architecture.empty()) entries.emplace_back("architectures", Node::list({Node::text(architecture)}));
  entries.emplace_back("model_type", Node::text(model_type));
  for (const Node::Entry& entry : values.entries())
    if (entry.first != "dtype" && entry.first != "torch_dtype") entries.push_back(entry);
  if (!dtype.empty())
    for (const char* key : {"dtype", "torch_dtype"}) entries.emplace_back(key, Node::text(dtype));
  return nlohmann::ordered_json::parse(config::to_json(Node::map(std::move(entries)))).dump(2) + "\n";
}

}  // namespace heddle::model
