// How a parameter lies in the tensors of checkpoint files, where a tensor is not simply the parameter: a
// transposed one, experts stacked here and apart there, one product for several layers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// A box of a tensor in the files that is a box of the parameter, with its dims in another order.
struct StoredPart {
  std::string tensor;           // its name in the files
  std::vector<int64_t> shape;   // of that whole tensor
  std::vector<int64_t> first;   // where the box begins in it
  std::vector<int64_t> dims;    // of each of its dims: the parameter's dim that it runs along; -1: one index
  std::vector<int64_t> offset;  // where the box begins in the parameter
  std::vector<int64_t> size;    // of the box along the parameter's dims; 1 along a dim that `dims` lacks
  bool operator==(const StoredPart&) const = default;
};

// Together every element of the parameter once. Empty: the tensor of the parameter's name, as it is.
using StoredParts = std::vector<StoredPart>;

namespace stored {

// The parameter is this whole tensor.
HEDDLE_API StoredParts whole(const std::string& tensor, std::span<const int64_t> shape);
// The parameter of `shape` is these tensors one behind the other along `dim`, of these sizes along it.
HEDDLE_API StoredParts concatenated(std::span<const std::string> tensors, std::span<const int64_t> sizes,
                                    std::span<const int64_t> shape, size_t dim);
// The parameter of `shape` is these tensors, each without `dim`, at its indices 0, 1, 2, ...
HEDDLE_API StoredParts stacked(std::span<const std::string> tensors, std::span<const int64_t> shape,
                               size_t dim);
// The parameter of `shape` is a stretch of the tensor, from `first` on along `dim`, where the tensor has
// `whole` indices.
HEDDLE_API StoredParts slice(const std::string& tensor, std::span<const int64_t> shape, size_t dim,
                             int64_t first, int64_t whole);
// The parameter of `shape` is the index `index` of `count` along `dim`, which the parameter lacks.
HEDDLE_API StoredParts element(const std::string& tensor, std::span<const int64_t> shape, size_t dim,
                               int64_t index, int64_t count);
// The files hold their last two dims in the other order.
HEDDLE_API StoredParts transposed(StoredParts parts);

// What is wrong with the parts of a parameter of `shape`: sizes that do not fit, an element that none or two
// of them hold; "" where nothing is.
HEDDLE_API std::string fault(const StoredParts& parts, std::span<const int64_t> shape);

// The same elements in both.
struct Common {
  std::vector<int64_t> in_tensor, tensor_size;        // offset and size in the tensor of the files
  std::vector<int64_t> in_parameter, parameter_size;  // and in the parameter
};
// What a part has of a box of the parameter, and of a box of the tensor; empty: nothing.
HEDDLE_API std::optional<Common> within_parameter(const StoredPart& part, std::span<const int64_t> offset,
                                                  std::span<const int64_t> size);
HEDDLE_API std::optional<Common> within_tensor(const StoredPart& part, std::span<const int64_t> offset,
                                               std::span<const int64_t> size);
// The order of the tensor's dims that gives the parameter's, without those of one index.
HEDDLE_API std::vector<int64_t> permutation(const StoredPart& part);
// The elements have one order in both, so a box can be moved without turning it.
HEDDLE_API bool in_order(const StoredPart& part);

}  // namespace stored
}  // namespace heddle
