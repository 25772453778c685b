// Boxes of parameters and of the tensors of files.
#include "heddle/model/stored.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace heddle::stored {
namespace {

using Sizes = std::vector<int64_t>;

// Returns a part with the same dims in file and memory.
StoredPart same_dims(const std::string& tensor, Sizes shape, Sizes size) {
  StoredPart part{
      tensor,         std::move(shape), Sizes(size.size(), 0), Sizes(size.size()), Sizes(size.size(), 0),
      std::move(size)};
  std::iota(part.dims.begin(), part.dims.end(), int64_t{0});
  return part;
}

int64_t volume(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool overlap(const StoredPart& a, const StoredPart& b) {
  for (size_t d = 0; d < a.size.size(); ++d)
    if (a.offset[d] + a.size[d] <= b.offset[d] || b.offset[d] + b.size[d] <= a.offset[d]) return false;
  return true;
}

// Returns the fault in the sizes of one part; "": none.
std::string stored_part_error(const StoredPart& part, std::span<const int64_t> shape) {
  const std::string name = "'" + part.tensor + "'";
  if (part.dims.size() != part.shape.size() || part.first.size() != part.shape.size() ||
      part.offset.size() != shape.size() || part.size.size() != shape.size())
    return "the numbers of dims of " + name + " do not agree";
  std::vector<bool> run(shape.size(), false);
  for (size_t d = 0; d < part.dims.size(); ++d) {
    const int64_t along = part.dims[d];
    if (along >= static_cast<int64_t>(shape.size()) || along < -1 || (along >= 0 && run[along]))
      return "dim " + std::to_string(d) + " of " + name + " runs along no dim of its own";
    const int64_t size = along < 0 ? 1 : part.size[along];
    if (along >= 0) run[along] = true;
    if (part.first[d] < 0 || size < 0 || part.first[d] + size > part.shape[d])
      return "the part lies outside " + name + " along its dim " + std::to_string(d);
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!run[d] && part.size[d] != 1)
      return name + " has no dim for the parameter's dim " + std::to_string(d);
    if (part.offset[d] < 0 || part.offset[d] + part.size[d] > shape[d])
      return name + " lies outside the parameter along dim " + std::to_string(d);
  }
  return "";
}

}  // namespace

StoredParts whole(const std::string& tensor, std::span<const int64_t> shape) {
  const Sizes sizes(shape.begin(), shape.end());
  return {same_dims(tensor, sizes, sizes)};
}

StoredParts concatenated(std::span<const std::string> tensors, std::span<const int64_t> sizes,
                         std::span<const int64_t> shape, size_t dim) {
  StoredParts parts;
  int64_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Sizes own(shape.begin(), shape.end());
    own[dim] = sizes[i];
    parts.push_back(same_dims(tensors[i], own, own));
    parts.back().offset[dim] = at;
    at += sizes[i];
  }
  return parts;
}

StoredParts stacked(std::span<const std::string> tensors, std::span<const int64_t> shape, size_t dim) {
  StoredParts parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Sizes box(shape.begin(), shape.end());
    box[dim] = 1;
    StoredPart part = same_dims(tensors[i], box, box);
    for (Sizes* of_tensor : {&part.shape, &part.first, &part.dims})
      of_tensor->erase(of_tensor->begin() + static_cast<std::ptrdiff_t>(dim));
    part.offset[dim] = static_cast<int64_t>(i);
    parts.push_back(std::move(part));
  }
  return parts;
}

StoredParts slice(const std::string& tensor, std::span<const int64_t> shape, size_t dim, int64_t first,
                  int64_t whole) {
  const Sizes size(shape.begin(), shape.end());
  Sizes all = size;
  all[dim] = whole;
  StoredPart part = same_dims(tensor, all, size);
  part.first[dim] = first;
  return {part};
}

StoredParts element(const std::string& tensor, std::span<const int64_t> shape, size_t dim, int64_t index,
                    int64_t count) {
  const Sizes size(shape.begin(), shape.end());
  StoredPart part = same_dims(tensor, size, size);
  const auto place = static_cast<std::ptrdiff_t>(dim);
  part.shape.insert(part.shape.begin() + place, count);
  part.first.insert(part.first.begin() + place, index);
  part.dims.insert(part.dims.begin() + place, -1);
  return {part};
}

StoredParts transposed(StoredParts parts) {
  for (StoredPart& part : parts)
    for (Sizes* of_tensor : {&part.shape, &part.first, &part.dims})
      std::swap(*of_tensor->rbegin(), *(of_tensor->rbegin() + 1));
  return parts;
}

std::string fault(const StoredParts& parts, std::span<const int64_t> shape) {
  int64_t held = 0;
  for (const StoredPart& part : parts) {
    if (std::string wrong = stored_part_error(part, shape); !wrong.empty()) return wrong;
    held += volume(part.size);
  }
  const int64_t all = volume(Sizes(shape.begin(), shape.end()));
  if (held != all)
    return "its parts have " + std::to_string(held) + " elements, the parameter " + std::to_string(all);
  for (size_t i = 0; i < parts.size(); ++i)
    for (size_t j = i + 1; j < parts.size(); ++j)
      if (overlap(parts[i], parts[j]))
        return "'" + parts[i].tensor + "' and '" + parts[j].tensor + "' hold the same elements";
  return "";
}

std::optional<Common> within_parameter(const StoredPart& part, std::span<const int64_t> offset,
                                       std::span<const int64_t> size) {
  Common out{part.first, Sizes(part.shape.size(), 1), Sizes(size.size()), Sizes(size.size())};
  for (size_t d = 0; d < size.size(); ++d) {
    const int64_t begin = std::max(offset[d], part.offset[d]);
    const int64_t end = std::min(offset[d] + size[d], part.offset[d] + part.size[d]);
    if (end <= begin) return std::nullopt;
    out.in_parameter[d] = begin;
    out.parameter_size[d] = end - begin;
  }
  for (size_t d = 0; d < part.dims.size(); ++d) {
    const int64_t along = part.dims[d];
    if (along < 0) continue;
    out.in_tensor[d] = part.first[d] + out.in_parameter[along] - part.offset[along];
    out.tensor_size[d] = out.parameter_size[along];
  }
  return out;
}

std::optional<Common> within_tensor(const StoredPart& part, std::span<const int64_t> offset,
                                    std::span<const int64_t> size) {
  Common out{part.first, Sizes(size.size(), 1), part.offset, Sizes(part.size.size(), 1)};
  for (size_t d = 0; d < size.size(); ++d) {
    const int64_t along = part.dims[d];
    const int64_t held = along < 0 ? 1 : part.size[along];
    const int64_t begin = std::max(offset[d], part.first[d]);
    const int64_t end = std::min(offset[d] + size[d], part.first[d] + held);
    if (end <= begin) return std::nullopt;
    out.in_tensor[d] = begin;
    out.tensor_size[d] = end - begin;
    if (along < 0) continue;
    out.in_parameter[along] = part.offset[along] + begin - part.first[d];
    out.parameter_size[along] = end - begin;
  }
  return out;
}

std::vector<int64_t> permutation(const StoredPart& part) {
  std::vector<std::pair<int64_t, int64_t>> order;  // the parameter's dim, the place among the tensor's
  for (const int64_t along : part.dims)
    if (along >= 0) order.emplace_back(along, static_cast<int64_t>(order.size()));
  std::sort(order.begin(), order.end());
  Sizes out;
  for (const auto& [along, place] : order) out.push_back(place);
  return out;
}

bool in_order(const StoredPart& part) {
  const Sizes order = permutation(part);
  return std::is_sorted(order.begin(), order.end());
}

}  // namespace heddle::stored
