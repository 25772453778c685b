// The fields of the block `moe:`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/config/common_fields.h"
#include "heddle/config/schema.h"

namespace heddle::moe {

// Fields and defaults of NeMo AutoModel's MoEParallelizerConfig, and heddle's own fields.
struct Block {
  bool ignore_router_for_ac = true;
  bool reshard_after_forward = false;
  DTypeWord lm_head_precision;
  bool wrap_outer_model = true;
  std::optional<MixedPrecision> mp_policy;

  std::string dispatcher = "auto";
  std::optional<double> capacity_factor;
  std::string drop_by = "weight";
  bool pad_to_capacity = false;
};

// Throws Error{config} for dtypes other than float32.
inline std::string head_complaint(const DTypeWord& dtype) {
  if (dtype.word.empty() || dtype.word == "float32") return "";
  return "lm_head_precision must be float32 or null, got " + dtype.word;
}

inline void add_own_fields(ConfigSchema<Block>& schema) {
  schema
      .field("dispatcher", &Block::dispatcher,
             "Token dispatcher: allgather, alltoall, or auto. auto uses allgather if the number of experts "
             "per token is at least ep_size, else alltoall.",
             OneOf{std::vector<std::string>{"auto", "allgather", "alltoall"}})
      .field("capacity_factor", &Block::capacity_factor,
             "Capacity of an expert: at most ceil(tokens * top-k / experts * factor) tokens of a rank. "
             "Further tokens are dropped. null: no limit.",
             at_least(0.0))
      .field("drop_by", &Block::drop_by,
             "Tokens that an expert above its capacity keeps: those with the largest weights (weight), or "
             "the first (position).",
             OneOf{std::vector<std::string>{"weight", "position"}})
      .field("pad_to_capacity", &Block::pad_to_capacity,
             "Pad the tokens for each expert to the capacity, so that alltoall exchanges no counts.");
}

inline std::string capacity_complaint(const Block& block) {
  if (block.capacity_factor && *block.capacity_factor <= 0) return "capacity_factor must be above 0";
  if (block.pad_to_capacity && !block.capacity_factor) return "pad_to_capacity: true needs a capacity_factor";
  if (block.pad_to_capacity && block.dispatcher == "allgather")
    return "pad_to_capacity: true needs the dispatcher alltoall: allgather sends every token once";
  return "";
}

inline ConfigSchema<Block> block_schema() {
  ConfigSchema<Block> schema;
  schema
      .field("ignore_router_for_ac", &Block::ignore_router_for_ac,
             "Ignored: a recomputed router selects the same experts, bit for bit.")
      .field("reshard_after_forward", &Block::reshard_after_forward,
             "Free whole parameters after the forward. The strategy's own reshard_after_forward takes "
             "precedence.")
      .field("lm_head_precision", &Block::lm_head_precision,
             "Dtype of the head. float32: the head computes in float32. null: as the model.")
      .field("wrap_outer_model", &Block::wrap_outer_model,
             "Allow the head and the embedding to share a parameter. Each unit is wrapped separately either "
             "way.")
      .field("mp_policy", &Block::mp_policy,
             "Mixed precision. Overrides the strategy's mp_policy. null: the strategy's.");
  add_own_fields(schema);
  schema.rule([](const Block& block) { return head_complaint(block.lm_head_precision); });
  schema.rule(capacity_complaint);
  return schema;
}

// At ep_size 1 only the capacity applies.
inline Node at_size_one(const Node& given) {
  if (given.find("capacity_factor")->is_null()) return Node();
  Node acts = block_schema().write(Block());
  for (const char* key : {"capacity_factor", "drop_by"}) acts = acts.with(key, *given.find(key));
  return acts;
}

// The parallelizer's block, and fields of the strategy, to find out whether the strategy has them.
struct Config {
  Block moe;
  Node reshard_after_forward = Node::text(kAbsent), mp_policy = Node::text(kAbsent);
  static constexpr const char* kAbsent = "absent";
};

inline bool is_absent(const Node& field) {
  return field == Node::text(Config::kAbsent);
}

}  // namespace heddle::moe

namespace heddle {

template <>
struct FieldType<moe::Block> : SectionField<moe::Block, &moe::block_schema> {};

namespace moe {

inline ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("moe", &Config::moe, "Settings of expert parallelism.")
      .field("reshard_after_forward", &Config::reshard_after_forward, "Set if the strategy has the field.")
      .field("mp_policy", &Config::mp_policy, "Set if the strategy has the field.");
}

}  // namespace moe
}  // namespace heddle
