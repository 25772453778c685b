// From a Hugging Face directory to a sharded one.
#include "lib/checkpoint/huggingface/shard_hf.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/hf_layout.h"
#include "lib/checkpoint/huggingface/stored_view.h"
#include "lib/checkpoint/safetensors/rows.h"

namespace heddle::checkpoint {
namespace {

std::vector<TensorToWrite> tensors_of(const BaseWeights& weights) {
  std::vector<TensorToWrite> tensors;
  for (const std::string& name : weights.names()) {
    const BaseWeights::Tensor stored = weights.at(name);
    tensors.push_back({name, stored.dtype, stored.shape});
    if (tensors.back().bytes() == 0)
      throw Error(ErrorCode::input, weights.file(name), "tensor " + text::quoted(name) + " has no elements",
                  "a sharded directory holds none: leave it out of the model");
  }
  return tensors;
}

// Whole tensors, of which the rows that were asked for may be read. Mapped, not read: the bytes come from the
// disk when they are written. Of a dequantized one these rows are in memory, and nothing else of it is
// touched.
class Wholes {
 public:
  explicit Wholes(const BaseWeights& weights) : weights_(weights) {}

  at::Tensor of(const TensorToWrite& tensor, const Rows& rows) {
    if (!weights_.is_quantized(tensor.name)) {
      const std::string_view bytes = weights_.bytes(tensor.name);
      return at::from_blob(const_cast<char*>(bytes.data()), tensor.shape, at::TensorOptions(tensor.dtype));
    }
    if (tensor.name != name_) made_ = at::empty(tensor.shape, tensor.dtype);
    name_ = tensor.name;
    std::vector<int64_t> offset(tensor.shape.size(), 0);
    offset[0] = rows.first;
    weights_.read(name_, offset, made_.narrow(0, rows.first, rows.count));
    return made_;
  }

 private:
  const BaseWeights& weights_;
  std::string name_;
  at::Tensor made_;
};

// By the names in the files. Tensors with other shapes than the model's are refused.
HfLayout layout_in(const BaseWeights& weights, const ModelSpec& model) {
  HfLayout named;
  for (auto& [tensor, pieces] : layout_of(model)) {
    const std::string name =
        name_there(tensor, &model, [&](const std::string& one) { return weights.has(one); });
    const std::string what = "tensor " + text::quoted(tensor);
    if (name.empty())
      throw Error(ErrorCode::input, "the weights", "hold no " + what,
                  "the config.json and the weights are of different models");
    if (const auto stored = weights.at(name); stored.shape != pieces.front().part.shape)
      throw Error(ErrorCode::input, weights.file(name),
                  what + " has the shape " + written(stored.shape) + ", the model needs " +
                      written(pieces.front().part.shape),
                  "do config.json and the weights belong together?");
    named.emplace(name, pieces);
  }
  check_whole(named);
  return named;
}

// Rows of a tensor as boxes of parameters.
void add_pieces(std::vector<Part>& parts, const std::vector<HfPiece>& pieces, const at::Tensor& whole,
                const Rows& rows) {
  std::vector<int64_t> offset(whole.dim(), 0), size = whole.sizes().vec();
  offset[0] = rows.first;
  size[0] = rows.count;
  for (const HfPiece& piece : pieces) {
    const auto common = stored::within_tensor(piece.part, offset, size);
    if (!common) continue;
    at::Tensor box = whole;
    for (size_t d = 0; d < offset.size(); ++d)
      box = box.narrow(static_cast<int64_t>(d), common->in_tensor[d], common->tensor_size[d]);
    parts.push_back(
        {piece.parameter, as_parameter(box, piece.part, *common), piece.shape, common->in_parameter});
  }
}

std::vector<Part> share_of(const BaseWeights& weights, const std::vector<TensorToWrite>& tensors,
                           const HfLayout& layout, int rank, int ranks) {
  std::vector<Part> parts;
  Wholes wholes(weights);
  size_t last = tensors.size();
  constexpr uint64_t kAnySize = std::numeric_limits<uint64_t>::max();
  for (const Rows& rows : deal_rows(std::span(&tensors, 1), kAnySize, rank, ranks)) {
    const TensorToWrite& tensor = tensors[rows.tensor];
    const at::Tensor whole = wholes.of(tensor, rows);
    if (const auto made = layout.find(tensor.name); made != layout.end()) {
      add_pieces(parts, made->second, whole, rows);
      last = tensors.size();
      continue;
    }
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

void shard_hf(const BaseWeights& weights, const std::filesystem::path& directory, Rendezvous& rendezvous,
              const std::string& key, const ModelSpec* model) {
  std::vector<Part> parts;
  on_every_rank(rendezvous, "share/" + key, [&] {
    const HfLayout layout = model == nullptr ? HfLayout{} : layout_in(weights, *model);
    parts = share_of(weights, tensors_of(weights), layout, rendezvous.rank(), rendezvous.world_size());
  });
  write_sharded(directory, "model", parts, rendezvous, key);
}

}  // namespace heddle::checkpoint
