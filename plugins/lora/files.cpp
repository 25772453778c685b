// JSON files that accompany the tensors of adapters.
#include "files.h"

#include <algorithm>

namespace heddle::lora {
namespace {

std::string text_of(std::vector<Node::Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return config::to_json(Node::map(std::move(entries))) + "\n";
}

// Writes full paths, because PEFT would match a shorter name in every module.
std::string adapter_config(const Config& config, const std::vector<Adapted>& layers,
                           const std::vector<AdaptedExperts>& experts, const TransformRun& run) {
  std::vector<std::string> paths, parameters;
  std::vector<Node::Entry> ranks;
  for (const Adapted& one : layers) paths.push_back(one.layer.path);
  for (const AdaptedExperts& one : experts) {
    for (const char* product : {".gate_up_proj", ".down_proj"}) {
      parameters.push_back(one.in_files + product);
      if (one.rank != config.dim) ranks.emplace_back(parameters.back(), Node::integer(one.rank));
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Node::Entry> entries = {{"base_model_name_or_path", Node::text(run.model)},
                                      {"bias", Node::text("none")},
                                      {"lora_alpha", Node::integer(config.alpha)},
                                      {"peft_type", Node::text("LORA")},
                                      {"r", Node::integer(config.dim)},
                                      {"target_modules", FieldType<std::vector<std::string>>::write(paths)},
                                      {"task_type", Node::text("CAUSAL_LM")},
                                      {"use_dora", Node::boolean(config.use_dora)}};
  if (!parameters.empty())
    entries.emplace_back("target_parameters", FieldType<std::vector<std::string>>::write(parameters));
  if (!ranks.empty()) entries.emplace_back("rank_pattern", Node::map(std::move(ranks)));
  if (std::any_of(layers.begin(), layers.end(), [](const Adapted& one) { return one.layer.is_transposed; }))
    entries.emplace_back("fan_in_fan_out", Node::boolean(true));  // transformers' Conv1D
  return text_of(std::move(entries));
}

std::string automodel_config(const Config& config) {
  std::vector<Node::Entry> rest;
  const Node all = schema().write(config);
  for (const Node::Entry& entry : all.entries())
    if (entry.first != "dim" && entry.first != "alpha" && entry.first != "_target_") rest.push_back(entry);
  return text_of(std::move(rest));
}

// Returns why PEFT cannot represent an adapter, or "" if it can.
std::string reason_against(const Adapted& one, bool beside_experts) {
  int64_t outputs = 0;
  for (const Adapted::Part& part : one.parts) outputs += part.outputs;
  const std::string& first = one.parts.front().path;
  if (outputs != one.layer.outputs)
    return "'" + first + "' is part of '" + one.layer.path +
           ".weight' in the model's files, for which PEFT has a single adapter";
  if (beside_experts && block_of(first) != block_of(one.layer.path))
    return "'" + first + "' is '" + one.layer.path +
           "' in the model's files, and PEFT's names of the experts of such a model are not known";
  return "";
}

void add_stored(const Adapted& one, const Config& config, std::map<std::string, AddedTensor>& stored) {
  const std::string& layer = one.layer.path;
  const std::string a = layer + ".lora_A.weight", b = layer + ".lora_B.weight",
                    magnitude = layer + ".lora_magnitude_vector";
  stored[one.parts.front().path + ".lora_A.weight"] = {a, {0, 1}, {config.dim, one.inputs}};
  for (const Adapted::Part& part : one.parts) {
    const auto within = [&](const std::string& tensor, int64_t columns) {
      return part.in_files.is_whole(part.outputs) ? StoredParts()
                                                  : rows_within(part.in_files, tensor, columns);
    };
    stored[part.path + ".lora_B.weight"] = {
        b, {0, 1}, {one.layer.outputs, config.dim}, within(b, config.dim)};
    if (config.use_dora)
      stored[part.path + ".lora_magnitude_vector.weight"] = {
          magnitude, {0}, {one.layer.outputs}, within(magnitude, 0)};
  }
}

}  // namespace

std::string taken_for_experts(const std::vector<Adapted>& layers) {
  for (const Adapted& one : layers)
    if (one.layer.path.ends_with(".gate_proj") || one.layer.path.ends_with(".up_proj")) return one.layer.path;
  return "";
}

std::optional<AddedFiles> peft_files(const Config& config, const std::vector<Adapted>& layers,
                                     const std::vector<AdaptedExperts>& experts, const TransformRun& run,
                                     std::string& why) {
  for (const Adapted& one : layers)
    if (why = reason_against(one, !experts.empty()); !why.empty()) return std::nullopt;
  AddedFiles out{"adapter_model.safetensors",
                 "base_model.model.",
                 {},
                 {{"adapter_config.json", adapter_config(config, layers, experts, run)},
                  {"automodel_peft_config.json", automodel_config(config)}}};
  for (const Adapted& one : layers) add_stored(one, config, out.stored);
  for (const AdaptedExperts& one : experts) add_stored(one, out.stored);
  return out;
}

}  // namespace heddle::lora
