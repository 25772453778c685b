// From a Hugging Face directory to a sharded one.
#include "heddle/checkpoint/shard_hf.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <limits>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/rows.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/checkpoint/together.h"

namespace heddle::checkpoint {
namespace {

std::vector<TensorToWrite> tensors_of(const HfWeights& weights) {
  std::vector<TensorToWrite> tensors;
  for (const std::string& name : weights.names()) {
    const StoredTensor& stored = weights.at(name);
    tensors.push_back({name, stored.dtype, stored.shape});
    if (tensors.back().bytes() == 0)
      throw Error(ErrorCode::input, weights.file(name), "tensor " + text::quoted(name) + " has no elements",
                  "a sharded directory holds none: leave it out of the model");
  }
  return tensors;
}

// Mapped, not read: the bytes come from the disk when they are written.
at::Tensor mapped(const HfWeights& weights, const TensorToWrite& tensor) {
  const std::string_view bytes = weights.bytes(tensor.name);
  return at::from_blob(const_cast<char*>(bytes.data()), tensor.shape, at::TensorOptions(tensor.dtype));
}

std::vector<Part> share_of(const HfWeights& weights, const std::vector<TensorToWrite>& tensors, int rank,
                           int ranks) {
  std::vector<Part> parts;
  size_t last = tensors.size();
  constexpr uint64_t kAnySize = std::numeric_limits<uint64_t>::max();
  for (const Rows& rows : deal_rows(std::span(&tensors, 1), kAnySize, rank, ranks)) {
    const TensorToWrite& tensor = tensors[rows.tensor];
    const at::Tensor whole = mapped(weights, tensor);
    if (tensor.shape.empty()) {
      parts.push_back({tensor.name, whole, {}, {}});
      continue;
    }
    if (rows.tensor == last) {  // one box of neighbouring rows
      const int64_t first = parts.back().offset[0];
      parts.back().tensor = whole.narrow(0, first, rows.first + rows.count - first);
      continue;
    }
    parts.push_back({tensor.name, whole.narrow(0, rows.first, rows.count), tensor.shape,
                     std::vector<int64_t>(tensor.shape.size(), 0)});
    parts.back().offset[0] = rows.first;
    last = rows.tensor;
  }
  return parts;
}

}  // namespace

void shard_hf(const HfWeights& weights, const std::filesystem::path& directory, Rendezvous& meeting,
              const std::string& key) {
  std::vector<Part> parts;
  together(meeting, "share/" + key,
           [&] { parts = share_of(weights, tensors_of(weights), meeting.rank(), meeting.world_size()); });
  write_sharded(directory, "model", parts, meeting, key);
}

}  // namespace heddle::checkpoint
