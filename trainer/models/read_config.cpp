// Reading a model's shape from Hugging Face's keys.
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heddle/base/nesting.h"
#include "heddle/base/regular_file.h"
#include "heddle/base/text.h"
#include "trainer/models/config_keys.h"
#include "trainer/models/model_config.h"
#include "trainer/models/read_rotary.h"

namespace heddle {
namespace {

using models::boolean_or;
using models::integer_or;
using models::refuse;
using nlohmann::ordered_json;

enum class UnknownKeys { refused, passed_over };

const std::vector<std::string> kTypes{"llama", "qwen2", "qwen3"};

std::string read_type(const Node& keys) {
  if (!keys.is_map()) refuse(keys, "expected a map of Hugging Face's keys, got " + keys.written());
  const Node* type = keys.find("model_type");
  if (type == nullptr || type->is_null()) refuse(keys, "model_type is missing; known: " + text::join(kTypes));
  for (const std::string& known : kTypes)
    if (type->as_text() == known) return known;
  const std::string near = text::nearest(type->as_text(), kTypes);
  refuse(*type, "model_type " + type->written() + " is not built; known: " + text::join(kTypes),
         near.empty() ? "" : "did you mean " + near + "?");
}

void check_keys(const Node& keys, UnknownKeys unknown) {
  for (const auto& [key, value] : keys.entries()) {
    if (models::acts(key) || models::is_harmless(key)) continue;
    const std::string near = models::nearest_acting_key(key);
    if (!near.empty()) refuse(value, "unknown key '" + key + "'", "did you mean " + near + "?");
    if (unknown == UnknownKeys::refused)
      refuse(value, "unknown key '" + key + "'", "the keys are those of a Hugging Face config.json");
  }
}

ModelConfig defaults_of(const std::string& type) {
  ModelConfig config;
  config.model_type = type;
  if (type == "llama") return config;
  config.vocab_size = 151936;
  config.intermediate_size = 22016;
  config.max_position_embeddings = 32768;
  config.qkv_bias = type == "qwen2";
  config.qk_norm = type == "qwen3";
  return config;
}

// Beyond any model there is; products of two such sizes, in bytes, are numbers of 64 bits.
constexpr int64_t kLargestSize = int64_t{1} << 28, kMostLayers = 100'000;

int64_t read_size(const Node& keys, std::string_view key, int64_t otherwise, int64_t most = kLargestSize) {
  const int64_t size = integer_or(keys, key, otherwise);
  if (size < 1 || size > most)
    refuse(*keys.find(key),
           "expected a size from 1 to " + std::to_string(most) + ", got " + std::to_string(size));
  return size;
}

// transformers' default of 32 key heads where that divides, else as many as query heads.
int64_t default_key_heads(const ModelConfig& config) {
  return config.model_type != "llama" && config.num_attention_heads % 32 == 0 ? 32
                                                                              : config.num_attention_heads;
}

void read_heads(const Node& keys, ModelConfig& config) {
  config.num_attention_heads = read_size(keys, "num_attention_heads", config.num_attention_heads);
  config.num_key_value_heads = read_size(keys, "num_key_value_heads", default_key_heads(config));
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    refuse(keys, "num_attention_heads " + std::to_string(config.num_attention_heads) +
                     " is not a multiple of num_key_value_heads " +
                     std::to_string(config.num_key_value_heads));
  const Node* head_dim = keys.find("head_dim");
  const bool given = head_dim != nullptr && !head_dim->is_null();
  const bool fixed = config.model_type == "qwen3" && head_dim == nullptr;
  if (!given && !fixed && config.hidden_size % config.num_attention_heads != 0)
    refuse(keys,
           "hidden_size " + std::to_string(config.hidden_size) +
               " is not a multiple of num_attention_heads " + std::to_string(config.num_attention_heads),
           "give head_dim");
  config.head_dim =
      fixed ? 128 : read_size(keys, "head_dim", config.hidden_size / config.num_attention_heads);
  if (config.num_attention_heads * config.head_dim > kLargestSize)
    refuse(keys, "num_attention_heads " + std::to_string(config.num_attention_heads) + " of head_dim " +
                     std::to_string(config.head_dim) + " are more than " + std::to_string(kLargestSize));
  if (config.head_dim % 2 != 0)
    refuse(given ? *head_dim : keys,
           "the rotary embedding needs an even head_dim, got " + std::to_string(config.head_dim));
}

void read_biases(const Node& keys, ModelConfig& config) {
  if (config.model_type == "qwen2") return;  // biases on q, k and v, whatever the keys say
  config.qkv_bias = config.output_bias = boolean_or(keys, "attention_bias", false);
  if (config.model_type == "llama") config.mlp_bias = boolean_or(keys, "mlp_bias", false);
}

void read_padding(const Node& keys, ModelConfig& config) {
  const Node* padding = keys.find("pad_token_id");
  if (padding == nullptr || padding->is_null()) return;
  const int64_t id = padding->as_integer();
  if (id >= config.vocab_size || id < -config.vocab_size)
    refuse(*padding, "expected a token of the vocabulary of " + std::to_string(config.vocab_size) + ", got " +
                         std::to_string(id));
  config.pad_token_id =
      id < 0 ? id + config.vocab_size : id;  // counted from the end, as torch.nn.Embedding does
}

ModelConfig read_keys(const Node& keys, UnknownKeys unknown) {
  ModelConfig config = defaults_of(read_type(keys));
  check_keys(keys, unknown);
  models::check_refused_keys(keys);
  config.vocab_size = read_size(keys, "vocab_size", config.vocab_size);
  config.hidden_size = read_size(keys, "hidden_size", config.hidden_size);
  config.intermediate_size = read_size(keys, "intermediate_size", config.intermediate_size);
  config.num_hidden_layers = read_size(keys, "num_hidden_layers", config.num_hidden_layers, kMostLayers);
  config.max_position_embeddings = read_size(keys, "max_position_embeddings", config.max_position_embeddings);
  read_heads(keys, config);
  config.rms_norm_eps = models::real_or(keys, "rms_norm_eps", config.rms_norm_eps);
  if (!(config.rms_norm_eps > 0)) refuse(*keys.find("rms_norm_eps"), "expected a number above 0");
  config.initializer_range = models::real_or(keys, "initializer_range", config.initializer_range);
  if (!(config.initializer_range >= 0))
    refuse(*keys.find("initializer_range"), "expected a number of at least 0");
  config.tie_word_embeddings = boolean_or(keys, "tie_word_embeddings", false);
  config.dtype = models::text_or(keys, "dtype", models::text_or(keys, "torch_dtype", ""));
  read_biases(keys, config);
  read_padding(keys, config);
  models::read_rotary(keys, config);
  return config;
}

constexpr size_t kDeepest = 32, kMostBytes = 64u << 20, kLargestFile = 16u << 20;

// `left`: the bytes that the values and their paths may still take.
Node to_node(const ordered_json& value, const Mark& mark, const std::string& path, size_t& left,
             size_t depth = 0) {
  if (depth > kDeepest) refuse(Node::null(mark, ""), "nested deeper than " + std::to_string(kDeepest));
  if (left < sizeof(Node) + path.size())
    refuse(Node::null(mark, ""),
           "its keys and values take more than " + std::to_string(kMostBytes) + " bytes");
  left -= sizeof(Node) + path.size();
  if (value.is_boolean()) return Node::boolean(value.get<bool>(), mark, path);
  if (value.is_number_integer()) return Node::integer(value.get<int64_t>(), mark, path);
  if (value.is_number()) return Node::real(value.get<double>(), mark, path);
  if (value.is_string()) return Node::text(value.get<std::string>(), mark, path);
  if (value.is_array()) {
    std::vector<Node> items;
    for (size_t i = 0; i < value.size(); ++i)
      items.push_back(to_node(value[i], mark, path + "[" + std::to_string(i) + "]", left, depth + 1));
    return Node::list(std::move(items), mark, path);
  }
  if (!value.is_object()) return Node::null(mark, path);
  std::vector<Node::Entry> entries;
  for (const auto& [key, item] : value.items())
    entries.emplace_back(key, to_node(item, mark, path.empty() ? key : path + "." + key, left, depth + 1));
  return Node::map(std::move(entries), mark, path);
}

}  // namespace

ModelConfig read_model_config(const Node& keys) {
  return read_keys(keys, UnknownKeys::refused);
}

ModelConfig read_model_config(const std::filesystem::path& config_json) {
  refuse_irregular(config_json, ErrorCode::input);
  std::ifstream stream(config_json);
  if (!stream)
    throw Error(ErrorCode::input, config_json.string(), "cannot be read",
                "name a Hugging Face directory, which holds a config.json");
  if (const auto size = std::filesystem::file_size(config_json); size > kLargestFile)
    throw Error(
        ErrorCode::input, config_json.string(),
        "has " + std::to_string(size) + " bytes; at most " + std::to_string(kLargestFile) + " are read");
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (text::nests_deeper(bytes.view(), text::kDeepest))
    throw Error(ErrorCode::input, config_json.string(),
                "nests deeper than " + std::to_string(text::kDeepest));
  try {
    size_t left = kMostBytes;
    return read_keys(to_node(ordered_json::parse(bytes.view()), {config_json.string(), 0, 0}, "", left),
                     UnknownKeys::passed_over);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::input, config_json.string(), std::string("is not JSON: ") + error.what());
  } catch (const Error& error) {
    throw Error(ErrorCode::input, error.where(), error.message(), error.hint());
  }
}

}  // namespace heddle
