// Reader of block_configs, and the description of the layers.
#include "keys.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/text.h"
#include "heddle/decoder/description.h"
#include "heddle/decoder/family.h"

namespace heddle::nemotron_nas {
namespace {

const std::vector<std::string> kParts = {"attention", "ffn"};
const std::vector<std::string> kOfAttention = {
    "n_heads_in_group", "no_op",          "num_sink_tokens", "replace_with_linear",
    "sparsify",         "unshifted_sink", "window_length",   "use_prefill_window_in_sink_attention"};
const std::vector<std::string> kOfFfn = {"ffn_mult", "no_op", "replace_with_linear", "sparsify"};

// A part that is null counts as absent.
void refuse_unknown(const Node& map, const std::vector<std::string>& known) {
  decoder::refuse_misspelt(map, known);
  for (const auto& [key, value] : map.entries())
    if (!value.is_null() && std::find(known.begin(), known.end(), key) == known.end())
      model::refuse(value, "block_configs: the key '" + key + "' is not built",
                    "supported keys: " + text::join(known));
}

const Node& part_of(const Node& block, const char* key, const std::vector<std::string>& known) {
  if (!block.is_map())
    model::refuse(block, "block_configs: expected a map with attention and ffn, got " + block.written());
  refuse_unknown(block, kParts);
  const Node* part = model::given(block, key);
  if (part == nullptr || !part->is_map())
    model::refuse(block,
                  std::string("block_configs: a block needs a map '") + key + "', but this one has none",
                  std::string("set ") + key + ": {no_op: true} if the layer has none");
  refuse_unknown(*part, known);
  return *part;
}

// Refuses keys that change a layer and are not built.
void refuse_others(const Node& part) {
  for (const char* key : {"replace_with_linear", "unshifted_sink", "use_prefill_window_in_sink_attention"})
    if (model::boolean_or(part, key, false))
      model::refuse(*part.find(key), std::string("block_configs: ") + key + " is not built",
                    "use attention or no_op, and an MLP or no_op");
  for (const char* key : {"sparsify", "window_length", "num_sink_tokens"})
    if (const Node* given = model::given(part, key); given != nullptr)
      model::refuse(*given, std::string("block_configs: ") + key + " is not built, got " + given->written(),
                    "use attention over all tokens and dense MLPs");
}

Block read_block(const Node& node, const Keys& keys) {
  const Node &attention = part_of(node, "attention", kOfAttention), &ffn = part_of(node, "ffn", kOfFfn);
  refuse_others(attention);
  refuse_others(ffn);
  Block out;
  if (!model::boolean_or(attention, "no_op", false)) {
    const int64_t usual =
        keys.num_attention_heads / keys.num_key_value_heads.value_or(keys.num_attention_heads);
    out.heads_in_group = model::size_or(attention, "n_heads_in_group", usual);
    if (keys.num_attention_heads % out.heads_in_group != 0)
      model::refuse(attention, "num_attention_heads " + std::to_string(keys.num_attention_heads) +
                                   " is not a multiple of n_heads_in_group " +
                                   std::to_string(out.heads_in_group));
  }
  if (model::boolean_or(ffn, "no_op", false)) return out;
  out.ffn_mult = model::real_or(ffn, "ffn_mult", 0);
  if (!(out.ffn_mult > 0 && out.ffn_mult < 4096) || mlp_width(out.ffn_mult, keys.hidden_size) < 1)
    model::refuse(ffn,
                  "block_configs: expected an ffn_mult above 0 and below 4096, got " +
                      (model::given(ffn, "ffn_mult") == nullptr ? "none" : ffn.find("ffn_mult")->written()));
  return out;
}

void read_blocks(const Node& given, Keys& keys) {
  const Node* blocks = model::given(given, "block_configs");
  if (blocks == nullptr)
    model::refuse(given, "block_configs is missing", "set block_configs to a list with one map per layer");
  if (!blocks->is_list() || static_cast<int64_t>(blocks->size()) != keys.num_hidden_layers)
    model::refuse(*blocks, "block_configs: expected a list of " + std::to_string(keys.num_hidden_layers) +
                               " maps, one per layer, got " +
                               (blocks->is_list() ? std::to_string(blocks->size()) : blocks->written()));
  for (const Node& block : blocks->items()) keys.blocks.push_back(read_block(block, keys));
}

Node written(const Block& block) {
  const bool attends = block.heads_in_group > 0, feeds = block.ffn_mult > 0;
  return Node::map({{"attention", Node::map({{"n_heads_in_group",
                                              attends ? Node::integer(block.heads_in_group) : Node::null()},
                                             {"no_op", Node::boolean(!attends)},
                                             {"num_sink_tokens", Node::null()},
                                             {"replace_with_linear", Node::boolean(false)},
                                             {"sparsify", Node::null()},
                                             {"unshifted_sink", Node::boolean(false)},
                                             {"use_prefill_window_in_sink_attention", Node::boolean(false)},
                                             {"window_length", Node::null()}})},
                    {"ffn", Node::map({{"ffn_mult", feeds ? Node::real(block.ffn_mult) : Node::null()},
                                       {"no_op", Node::boolean(!feeds)},
                                       {"replace_with_linear", Node::boolean(false)},
                                       {"sparsify", Node::null()}})}});
}

}  // namespace

Keys::Keys() {
  vocab_size = 128256, hidden_size = 8192, num_hidden_layers = 80, num_attention_heads = 64;
  max_position_embeddings = 131072, rms_norm_eps = 1e-5, rotary.theta = 500000;
}

int64_t mlp_width(double ffn_mult, int64_t hidden_size) {
  const auto width = static_cast<int64_t>(2 * ffn_mult * static_cast<double>(hidden_size) / 3);
  return (width + 255) / 256 * 256;
}

model::KeyGroup<Keys> block_configs() {
  model::KeyGroup<Keys> out;
  out.table = {{"block_configs", "list of maps", "", "",
                "One map per layer: attention (no_op, or n_heads_in_group query heads per key head; absent: "
                "derived from num_key_value_heads) and ffn (no_op, or ffn_mult). Required.",
                ""}};
  out.read = read_blocks;
  out.write = [](const Keys& of) -> std::vector<Node::Entry> {
    std::vector<Node> blocks;
    for (const Block& block : of.blocks) blocks.push_back(written(block));
    return {{"block_configs", Node::list(std::move(blocks))}};
  };
  return out;
}

decoder::Model model_of(const Keys& keys) {
  decoder::Model model = keys.model();
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  for (const Block& block : keys.blocks) {
    decoder::Layer layer{decoder::Absent(), decoder::Absent(), keys.norm()};
    if (block.heads_in_group > 0) {
      attention.kv_heads = keys.num_attention_heads / block.heads_in_group;
      layer.mixer = attention;
    }
    if (block.ffn_mult > 0)
      layer.feed_forward =
          decoder::Mlp{.width = mlp_width(block.ffn_mult, keys.hidden_size), .bias = keys.mlp_bias};
    model.layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace heddle::nemotron_nas
