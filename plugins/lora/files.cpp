// The texts beside the tensors of adapters.
#include "files.h"

#include <algorithm>

namespace heddle::lora {
namespace {

std::string text_of(std::vector<Node::Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return config::to_json(Node::map(std::move(entries))) + "\n";
}

// Full paths: PEFT would look for a shorter name in every module.
std::string adapter_config(const Config& config, const std::vector<Adapted>& layers,
                           const std::vector<AdaptedExperts>& experts, const TransformRun& run) {
  std::vector<std::string> paths, parameters;
  std::vector<Node::Entry> ranks;
  for (const Adapted& layer : layers) paths.push_back(layer.path);
  for (const AdaptedExperts& one : experts) {
    for (const char* product : {".gate_up_proj", ".down_proj"}) {
      parameters.push_back(one.path + product);
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
  return text_of(std::move(entries));
}

std::string automodel_config(const Config& config) {
  std::vector<Node::Entry> rest;
  const Node all = schema().write(config);
  for (const Node::Entry& entry : all.entries())
    if (entry.first != "dim" && entry.first != "alpha" && entry.first != "_target_") rest.push_back(entry);
  return text_of(std::move(rest));
}

// The tensor of files that has the weight in another form; "": its own.
std::string other_tensor(const ModelSpec& spec, const Adapted& layer) {
  const std::string weight = layer.path + ".weight";
  const StoredParts parts = spec.stored(weight, layer.shape);
  const bool own = parts.size() == 1 && parts[0].tensor == weight && parts[0].shape == layer.shape;
  return own || parts.empty() ? "" : parts[0].tensor;
}

}  // namespace

std::optional<AddedFiles> peft_files(const Config& config, const std::vector<Adapted>& layers,
                                     const std::vector<AdaptedExperts>& experts, const TransformRun& run,
                                     std::string& why) {
  if (run.spec != nullptr)
    for (const Adapted& layer : layers)
      if (const std::string tensor = other_tensor(*run.spec, layer); !tensor.empty()) {
        why = "'" + layer.path + "' is a part of '" + tensor + "' in the model's files";
        return std::nullopt;
      }
  AddedFiles out{"adapter_model.safetensors",
                 "base_model.model.",
                 {},
                 {{"adapter_config.json", adapter_config(config, layers, experts, run)},
                  {"automodel_peft_config.json", automodel_config(config)}}};
  for (const AdaptedExperts& one : experts) add_stored(one, out.stored);
  if (config.use_dora)
    for (const Adapted& layer : layers) {
      const std::string magnitude = layer.path + ".lora_magnitude_vector";
      out.stored[magnitude + ".weight"] = {magnitude, {0}, {layer.shape[0]}};
    }
  return out;
}

}  // namespace heddle::lora
