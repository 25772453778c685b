// One part for each expert's tensor, or one for all.
#include "stored_names.h"

#include <string_view>
#include <utility>

#include "model_type.h"

namespace heddle::llama {
namespace {

// The matrix of one expert in a parameter of matrices for each expert, or for gate and up of each.
StoredPart part_of(std::string tensor, std::span<const int64_t> shape, int64_t expert, int64_t which) {
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (shape.size() == 3)
    return {std::move(tensor), {rows, columns}, {0, 0}, {1, 2}, {expert, 0, 0}, {1, rows, columns}};
  return {std::move(tensor), {rows, columns}, {0, 0}, {2, 3}, {expert, which, 0, 0}, {1, 1, rows, columns}};
}

}  // namespace

StoredParts stored_parts(const ModelConfig& config, const std::string& parameter,
                         std::span<const int64_t> shape) {
  const ModelType& type = type_of(config.model_type);
  if (type.other_files != nullptr)
    if (StoredParts parts = type.other_files(config, parameter, shape); !parts.empty()) return parts;
  const ExpertFiles& files = type.experts;
  const std::string_view kGateUp = ".mlp.experts.gate_up_proj", kDown = ".mlp.experts.down_proj";
  const auto layer_of = [&](std::string_view end) {
    return parameter.substr(0, parameter.size() - end.size()) + "." + files.layer;
  };
  const std::pair<std::string_view, std::string> kRouter[] = {
      {".mlp.gate.weight", files.router + ".weight"},
      {".mlp.gate.bias", files.router + ".bias"},
      {".mlp.gate.e_score_correction_bias", files.correction}};
  for (const auto& [end, name] : kRouter)
    if (parameter.ends_with(end)) return stored::whole(layer_of(end) + "." + name, shape);
  const bool gate_up = parameter.ends_with(kGateUp);
  if (!gate_up && !parameter.ends_with(kDown)) return {};
  if (files.stacked) return stored::transposed(stored::whole(parameter, shape));
  const std::string experts = layer_of(gate_up ? kGateUp : kDown) + ".experts.";
  StoredParts parts;
  for (int64_t e = 0; e < shape[0]; ++e) {
    const std::string expert = experts + std::to_string(e) + ".";
    if (gate_up) {
      parts.push_back(part_of(expert + files.gate + ".weight", shape, e, 0));
      parts.push_back(part_of(expert + files.up + ".weight", shape, e, 1));
    } else {
      parts.push_back(part_of(expert + files.down + ".weight", shape, e, 0));
    }
  }
  return parts;
}

}  // namespace heddle::llama
