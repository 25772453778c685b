// From parameters to the tensors of files.
#include "lib/checkpoint/huggingface/hf_layout.h"

#include <functional>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"

namespace heddle::checkpoint {
namespace {

// Each parameter once, in the order of the model.
void for_each_parameter(const ModelSpec& model, const std::function<void(const ParameterSlot&)>& visit) {
  std::map<std::string, bool> seen;
  for (const auto& unit : model.make_units(at::kMeta))
    for (const ParameterSlot& slot : unit->parameters())
      if (seen.emplace(slot.name, true).second) visit(slot);
}

int64_t elements(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

bool add_to(HfLayout& layout, const ModelSpec& model, const std::string& parameter,
            std::span<const int64_t> shape) {
  StoredParts parts = model.stored(parameter, shape);
  for (StoredPart& part : parts) {
    const std::string tensor = part.tensor;
    layout[tensor].push_back({parameter, {shape.begin(), shape.end()}, std::move(part)});
  }
  return !parts.empty();
}

HfLayout layout_of(const ModelSpec& model) {
  HfLayout layout;
  for_each_parameter(
      model, [&](const ParameterSlot& slot) { add_to(layout, model, slot.name, slot.tensor->sizes()); });
  return layout;
}

std::map<std::string, InModel> places_of(const ModelSpec& model) {
  std::map<std::string, InModel> places;
  for_each_parameter(model, [&](const ParameterSlot& slot) {
    places.emplace(slot.name, InModel{places.size(), slot.compute.has_value()});
  });
  return places;
}

void check_whole(const HfLayout& layout) {
  for (const auto& [tensor, pieces] : layout) {
    int64_t held = 0;
    for (const HfPiece& piece : pieces) {
      held += elements(piece.part.size);
      if (piece.part.shape == pieces.front().part.shape) continue;
      throw Error(ErrorCode::internal, tensor,
                  "the model gives it the shapes " + written(pieces.front().part.shape) + " and " +
                      written(piece.part.shape));
    }
    if (const int64_t all = elements(pieces.front().part.shape); held != all)
      throw Error(ErrorCode::internal, tensor,
                  "the model's parameters hold " + std::to_string(held) + " of its " + std::to_string(all) +
                      " elements");
  }
}

}  // namespace heddle::checkpoint
