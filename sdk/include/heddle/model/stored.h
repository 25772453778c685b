// How a parameter is stored in the tensors of checkpoint files if the tensor is not the parameter itself:
// transposed, experts stacked or separate, one product for several layers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// A box of a tensor in the files that equals a box of the parameter with its dims in another order.
struct StoredPart {
  std::string tensor;           // its name in the files
  std::vector<int64_t> shape;   // of that whole tensor
  std::vector<int64_t> first;   // where the box begins in it
  std::vector<int64_t> dims;    // for each of its dims: the parameter's dim; -1: one index
  std::vector<int64_t> offset;  // where the box begins in the parameter
  std::vector<int64_t> size;    // of the box along the parameter's dims; 1 along a dim that `dims` lacks
  bool operator==(const StoredPart&) const = default;
};

// Together they hold every element of the parameter once. Empty: the tensor of the parameter's name, as it
// is.
using StoredParts = std::vector<StoredPart>;

namespace stored {

// The parameter is this whole tensor.
HEDDLE_API StoredParts whole(const std::string& tensor, std::span<const int64_t> shape);
// The parameter of `shape` is the concatenation of these tensors along `dim`, with these sizes.
HEDDLE_API StoredParts concatenated(std::span<const std::string> tensors, std::span<const int64_t> sizes,
                                    std::span<const int64_t> shape, size_t dim);
// The parameter of `shape` is these tensors, each without `dim`, at its indices 0, 1, 2, ...
HEDDLE_API StoredParts stacked(std::span<const std::string> tensors, std::span<const int64_t> shape,
                               size_t dim);
// The parameter of `shape` is a slice of the tensor, from `first` on along `dim`, which has `whole` indices.
HEDDLE_API StoredParts slice(const std::string& tensor, std::span<const int64_t> shape, size_t dim,
                             int64_t first, int64_t whole);
// The parameter of `shape` is the index `index` of `count` along `dim`, which the parameter lacks.
HEDDLE_API StoredParts element(const std::string& tensor, std::span<const int64_t> shape, size_t dim,
                               int64_t index, int64_t count);
// The files hold their last two dims in the other order.
HEDDLE_API StoredParts transposed(StoredParts parts);

// What is wrong with the parts of a parameter of `shape`: sizes that do not fit, missing or duplicate
// elements; "": nothing.
HEDDLE_API std::string fault(const StoredParts& parts, std::span<const int64_t> shape);

// The same elements in both.
struct Common {
  std::vector<int64_t> in_tensor, tensor_size;        // offset and size in the tensor of the files
  std::vector<int64_t> in_parameter, parameter_size;  // and in the parameter
};
// The intersection of a part with a box of the parameter, or of the tensor; empty: none.
HEDDLE_API std::optional<Common> within_parameter(const StoredPart& part, std::span<const int64_t> offset,
                                                  std::span<const int64_t> size);
HEDDLE_API std::optional<Common> within_tensor(const StoredPart& part, std::span<const int64_t> offset,
                                               std::span<const int64_t> size);
// The permutation of the tensor's dims that gives the parameter's, without dims of one index.
HEDDLE_API std::vector<int64_t> permutation(const StoredPart& part);
// The elements have the same order in both, so a box can be copied without a transpose.
HEDDLE_API bool in_order(const StoredPart& part);

}  // namespace stored
}  // namespace heddle
