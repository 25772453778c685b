// From parameters to the tensors of files.
#include "lib/checkpoint/huggingface/hf_layout.h"

#include <algorithm>
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

[[noreturn]] void refuse_overlap(const std::string& tensor, const std::string& one,
                                 const std::string& other) {
  throw Error(ErrorCode::plugin_failed, tensor,
              "the model's stored() puts elements of '" + one + "' and of '" + other +
                  "' at one place of this tensor of the files",
              "each element of a tensor is of one parameter (heddle/model/stored.h)");
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
  std::vector<std::string> itself;  // parameters that are tensors of the files
  for_each_parameter(model, [&](const ParameterSlot& slot) {
    if (!add_to(layout, model, slot.name, slot.tensor->sizes())) itself.push_back(slot.name);
  });
  for (const std::string& name : itself)
    if (const auto claimed = layout.find(name); claimed != layout.end())
      refuse_overlap(name, claimed->second.front().parameter, name);
  return layout;
}

std::map<std::string, InModel> places_of(const ModelSpec& model) {
  std::map<std::string, InModel> places;
  for_each_parameter(model, [&](const ParameterSlot& slot) {
    places.emplace(slot.name, InModel{places.size(), slot.compute.has_value()});
  });
  return places;
}

namespace {

bool overlap(const StoredPart& one, const StoredPart& other) {
  for (size_t dim = 0; dim < one.first.size(); ++dim) {
    const auto size_of = [dim](const StoredPart& part) {
      return part.dims[dim] < 0 ? int64_t{1} : part.size[static_cast<size_t>(part.dims[dim])];
    };
    if (one.first[dim] + size_of(one) <= other.first[dim] ||
        other.first[dim] + size_of(other) <= one.first[dim])
      return false;
  }
  return true;
}

// Boxes sorted by where they begin: only those that begin before the end of one along the first dim are
// compared with it.
void check_overlaps(const std::string& tensor, const std::vector<HfPiece>& pieces) {
  std::vector<const HfPiece*> sorted;
  for (const HfPiece& piece : pieces)
    if (elements(piece.part.size) > 0) sorted.push_back(&piece);
  std::sort(sorted.begin(), sorted.end(),
            [](const HfPiece* a, const HfPiece* b) { return a->part.first < b->part.first; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    const StoredPart& one = sorted[i]->part;
    if (one.first.empty()) continue;
    const int64_t end = one.first[0] + (one.dims[0] < 0 ? 1 : one.size[static_cast<size_t>(one.dims[0])]);
    for (size_t j = i + 1; j < sorted.size() && sorted[j]->part.first[0] < end; ++j)
      if (overlap(one, sorted[j]->part)) refuse_overlap(tensor, sorted[i]->parameter, sorted[j]->parameter);
  }
}

}  // namespace

void check_overlaps(const HfLayout& layout) {
  for (const auto& [tensor, pieces] : layout) check_overlaps(tensor, pieces);
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
    check_overlaps(tensor, pieces);
    if (const int64_t all = elements(pieces.front().part.shape); held != all)
      throw Error(ErrorCode::internal, tensor,
                  "the model's parameters hold " + std::to_string(held) + " of its " + std::to_string(all) +
                      " elements");
  }
}

}  // namespace heddle::checkpoint
