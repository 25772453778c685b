// Ranks, initial values and names of the adapters of experts.
#include "experts.h"

#include <cmath>

#include "adapters.h"
#include "heddle/base/error.h"

namespace heddle::lora {
namespace {

// Uses the fans that torch computes for a tensor [experts, in, rank].
Init first_values(const Config& config, int64_t experts, int64_t in, int64_t rank) {
  const auto fan_in = static_cast<double>(in * rank), fan_out = static_cast<double>(experts * rank);
  if (config.a_init == "xavier") return {Init::Kind::normal, std::sqrt(2 / (fan_in + fan_out))};
  return uniform_within(1 / std::sqrt(fan_in));
}

int64_t rank_of(const FoundExperts& found, const Config& config, const std::string& where) {
  if (!config.moe_rank_scaling) return config.dim;
  const int64_t rank = config.dim / found.choices;
  if (rank > 0) return rank;
  throw Error(ErrorCode::config, where + ".moe_rank_scaling",
              "moe_rank_scaling: dim=" + std::to_string(config.dim) +
                  " // n_activated_experts=" + std::to_string(found.choices) + " gives rank 0",
              "Increase dim to at least n_activated_experts.");
}

// If one tensor of the files holds a projection of all experts, its path is that of transformers' module.
std::string path_in_files(const ModelSpec* spec, const FoundExperts& found) {
  if (spec == nullptr) return found.path;
  std::string name;
  for (const ParameterSlot& slot : found.experts->slots())
    if (slot.tensor == &found.experts->down) name = "." + slot.name;
  const StoredParts parts = spec->stored(found.path + name, found.experts->down.sizes());
  if (parts.size() != 1 || !parts.front().tensor.ends_with(name)) return found.path;
  return parts.front().tensor.substr(0, parts.front().tensor.size() - name.size());
}

}  // namespace

std::vector<AdaptedExperts> adapt_experts(const std::vector<FoundExperts>& found, const Config& config,
                                          const ModelSpec* spec, const std::string& where, Transformed& out) {
  std::vector<AdaptedExperts> adapted;
  for (const FoundExperts& one : found) {
    const Experts::Shape& shape = one.experts->shape();
    const int64_t rank = rank_of(one, config, where);
    if (config.moe_rank_scaling && config.dim % one.choices != 0 && adapted.empty())
      out.warnings.push_back(where + ".moe_rank_scaling: dim " + std::to_string(config.dim) +
                             " is not a multiple of the " + std::to_string(one.choices) +
                             " experts per token: adapters of experts have rank " + std::to_string(rank));
    one.experts->adapt({rank, static_cast<double>(config.alpha) / static_cast<double>(rank),
                        [&](int64_t in) { return first_values(config, shape.experts, in, rank); }});
    adapted.push_back({one.path, path_in_files(spec, one), shape.experts, rank, shape.hidden, shape.width,
                       shape.activation.columns() * shape.width});
    for (const char* name : {"lora_gate_and_up_A", "lora_gate_and_up_B", "lora_down_A", "lora_down_B"})
      out.added.push_back(one.path + "." + name);
  }
  return adapted;
}

// PEFT wraps gate_up_proj first, so its adapter belongs to the base layer of the other wrapper.
void add_stored(const AdaptedExperts& experts, std::map<std::string, AddedTensor>& stored) {
  const auto add = [&](const std::string& slot, const std::string& wrapper, int64_t in, int64_t out) {
    const int64_t all = experts.count * experts.rank;
    stored[experts.path + "." + slot + "_A"] = {
        experts.in_files + wrapper + ".lora_A.weight", {0, 1, 2}, {all, in}};
    stored[experts.path + "." + slot + "_B"] = {
        experts.in_files + wrapper + ".lora_B.weight", {1, 2, 0}, {out, all}};
  };
  add("lora_gate_and_up", ".base_layer", experts.hidden, experts.rows);
  add("lora_down", "", experts.width, experts.hidden);
}

}  // namespace heddle::lora
