// How files store a parameter that is not a tensor of its own: transposed, with stacked or separate experts,
// or fused with other parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// A box of a tensor in files that equals a box of the parameter, up to the order of dims.
struct StoredPart {
  std::string tensor;          // name in the files
  std::vector<int64_t> shape;  // shape of the whole tensor
  std::vector<int64_t> first;  // offset of the box in the tensor
  std::vector<int64_t> dims;   // for each dim of the tensor, the parameter's dim; -1 for a dim with one index
  std::vector<int64_t> offset;  // offset of the box in the parameter
  std::vector<int64_t> size;    // size of the box along the parameter's dims; 1 along a dim not in `dims`
  bool operator==(const StoredPart&) const = default;
};

// The parts of a parameter, which hold each of its elements exactly once. Empty if the files store the
// parameter unchanged under its name.
using StoredParts = std::vector<StoredPart>;

namespace stored {

// The parameter is the whole tensor.
HEDDLE_API StoredParts whole(const std::string& tensor, std::span<const int64_t> shape);
// The parameter of `shape` is the concatenation of the tensors along `dim`, with these sizes.
HEDDLE_API StoredParts concatenated(std::span<const std::string> tensors, std::span<const int64_t> sizes,
                                    std::span<const int64_t> shape, size_t dim);
// The parameter of `shape` is the stack of the tensors along `dim`.
HEDDLE_API StoredParts stacked(std::span<const std::string> tensors, std::span<const int64_t> shape,
                               size_t dim);
// The parameter of `shape` is a slice of the tensor that begins at `first` along `dim`, where the tensor has
// size `whole`.
HEDDLE_API StoredParts slice(const std::string& tensor, std::span<const int64_t> shape, size_t dim,
                             int64_t first, int64_t whole);
// The parameter of `shape` is the element `index` of `count` along `dim`, a dim that the parameter does not
// have.
HEDDLE_API StoredParts element(const std::string& tensor, std::span<const int64_t> shape, size_t dim,
                               int64_t index, int64_t count);
// The files store the last two dims transposed.
HEDDLE_API StoredParts transposed(StoredParts parts);

// Returns an error text for parts that do not fit a parameter of `shape` (wrong sizes, missing or duplicate
// elements), or "".
HEDDLE_API std::string fault(const StoredParts& parts, std::span<const int64_t> shape);

// A box in the tensor of the files, and the same elements in the parameter.
struct Common {
  std::vector<int64_t> in_tensor, tensor_size;        // offset and size in the tensor
  std::vector<int64_t> in_parameter, parameter_size;  // offset and size in the parameter
};
// Return the intersection of a part with a box of the parameter, or with a box of the tensor; empty if they
// are disjoint.
HEDDLE_API std::optional<Common> within_parameter(const StoredPart& part, std::span<const int64_t> offset,
                                                  std::span<const int64_t> size);
HEDDLE_API std::optional<Common> within_tensor(const StoredPart& part, std::span<const int64_t> offset,
                                               std::span<const int64_t> size);
// Returns the permutation from the tensor's dims to the parameter's dims, without dims of one index.
HEDDLE_API std::vector<int64_t> permutation(const StoredPart& part);
// Returns whether both have the same element order, so that a box can be copied without a transpose.
HEDDLE_API bool in_order(const StoredPart& part);

}  // namespace stored
}  // namespace heddle
