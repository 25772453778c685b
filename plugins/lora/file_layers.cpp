// Mapping of a weight's boxes in files to a layer of the files and its rows.
#include "file_layers.h"

#include <algorithm>
#include <string_view>

namespace heddle::lora {
namespace {

// Paths in files may have another prefix than module paths: "backbone." in Nemotron-H's files, "model." in
// transformers' class and in memory.
std::string as_module(const ModelSpec& spec, const std::string& tensor, const std::string& path) {
  const std::string begin = path.substr(0, path.find('.') + 1);
  if (tensor.starts_with(begin)) return tensor;
  for (const std::string& other : spec.other_names(tensor))
    if (other.starts_with(begin)) return other;
  return tensor;
}

}  // namespace

FileLayer file_layer(const ModelSpec* spec, const std::string& path, const Linear& layer) {
  constexpr std::string_view kWeight = ".weight";
  const int64_t outputs = layer.weight.size(0);
  const FileLayer own{path, outputs, {{0, outputs, 0}}};
  if (spec == nullptr) return own;
  const StoredParts parts = spec->stored(path + std::string(kWeight), layer.weight.sizes());
  if (parts.empty()) return own;
  FileLayer out;
  for (const StoredPart& part : parts) {
    const auto row_dim = std::find(part.dims.begin(), part.dims.end(), 0) - part.dims.begin();
    const bool is_matrix = part.dims.size() == 2 && row_dim < 2 && part.tensor.ends_with(kWeight) &&
                           part.tensor == parts.front().tensor;
    if (!is_matrix) return own;  // several tensors: not a single linear layer
    out.outputs = part.shape[row_dim];
    out.is_transposed = row_dim == 1;
    out.rows.push_back({part.offset[0], part.size[0], part.first[row_dim]});
  }
  const std::string tensor = as_module(*spec, parts.front().tensor, path);
  out.path = tensor.substr(0, tensor.size() - kWeight.size());
  return out;
}

std::string block_of(const std::string& path) {
  return path.substr(0, path.rfind('.') + 1);
}

StoredParts rows_within(const FileLayer& layer, const std::string& tensor, int64_t columns) {
  StoredParts out;
  for (const Rows& rows : layer.rows) {
    if (columns == 0)
      out.push_back({tensor, {layer.outputs}, {rows.first}, {0}, {rows.begin}, {rows.count}});
    else
      out.push_back({tensor,
                     {layer.outputs, columns},
                     {rows.first, 0},
                     {0, 1},
                     {rows.begin, 0},
                     {rows.count, columns}});
  }
  return out;
}

}  // namespace heddle::lora
