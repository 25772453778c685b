// Parameters filled from Hugging Face weights.
#include "heddle/checkpoint/hf_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"
#include "lib/checkpoint/huggingface/hf_layout.h"
#include "lib/checkpoint/huggingface/stored_view.h"
#include "lib/checkpoint/quantized/base_weights.h"

namespace heddle::checkpoint {
namespace {

[[noreturn]] void refuse_missing(const std::string& directory, const BaseWeights& weights,
                                 const std::string& name) {
  const std::vector<std::string> names = weights.names();
  const std::string near = text::nearest(name, names);
  throw Error(ErrorCode::input, directory, "the weights hold no tensor " + text::quoted(name),
              near.empty() ? "the config.json and the weights are of different models"
                           : "the nearest name is " + text::quoted(near) +
                                 "; do config.json and the weights belong together?");
}

// Reads the tensors of one directory.
class Filler {
 public:
  Filler(const std::filesystem::path& directory, std::shared_ptr<const HfWeights> weights,
         std::shared_ptr<const ModelSpec> model)
      : where_(directory.string()),
        weights_(directory, std::move(weights), quantization_in(directory)),
        model_(std::move(model)) {}

  bool fill(const Shard& shard) const {
    const StoredParts parts = model_ ? model_->stored(shard.name, shard.shape) : StoredParts{};
    if (parts.empty()) {
      const std::string name = checked(shard.name, shard.shape);
      if (!shard.tensor.is_meta()) weights_.read(name, shard.offset, shard.tensor);
    }
    for (const StoredPart& part : parts) fill(shard, part);
    return true;
  }

 private:
  void fill(const Shard& shard, const StoredPart& part) const {
    const std::string name = checked(part.tensor, part.shape);
    const auto common = stored::within_parameter(part, shard.offset, shard.tensor.sizes());
    if (!common || shard.tensor.is_meta()) return;
    const at::Tensor target = piece_of(shard.tensor.detach(), shard.offset, *common);
    if (stored::in_order(part) && target.is_contiguous())
      return weights_.read(name, common->in_tensor, target.view(common->tensor_size));
    const at::Tensor box = at::empty(common->tensor_size, shard.tensor.options());
    weights_.read(name, common->in_tensor, box);
    target.copy_(as_parameter(box, part, *common));
  }

  // Its name in the files.
  std::string checked(const std::string& tensor, const std::vector<int64_t>& shape) const {
    const std::string name =
        name_there(tensor, model_.get(), [this](const std::string& one) { return weights_.has(one); });
    if (name.empty()) refuse_missing(where_, weights_, tensor);
    const BaseWeights::Tensor stored = weights_.at(name);
    if (stored.shape == shape) return name;
    throw Error(ErrorCode::input, where_,
                "tensor " + text::quoted(name) + " has the shape " + written(stored.shape) +
                    ", the model needs " + written(shape),
                "do config.json and the weights belong together?");
  }

  std::string where_;
  BaseWeights weights_;
  std::shared_ptr<const ModelSpec> model_;
};

}  // namespace

std::string name_there(const std::string& tensor, const ModelSpec* model,
                       const std::function<bool(const std::string&)>& has) {
  if (has(tensor)) return tensor;
  if (model != nullptr)
    for (const std::string& other : model->other_names(tensor))
      if (has(other)) return other;
  return "";
}

ParameterSource hf_source(const std::filesystem::path& directory, std::shared_ptr<const HfWeights> weights,
                          std::shared_ptr<const ModelSpec> model) {
  if (model != nullptr) check_overlaps(layout_of(*model));
  return [filler = Filler(directory, std::move(weights), std::move(model))](const Shard& shard) {
    return filler.fill(shard);
  };
}

std::vector<std::string> unused(std::span<const std::string> names, const Units& units,
                                const ModelSpec* model) {
  const std::set<std::string, std::less<>> there(names.begin(), names.end());
  std::set<std::string> wanted;
  const auto want = [&](const std::string& tensor) {
    wanted.insert(name_there(tensor, model, [&](const std::string& name) { return there.contains(name); }));
  };
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      const auto sizes = slot.tensor->sizes();
      const StoredParts parts = model == nullptr ? StoredParts{} : model->stored(slot.name, sizes);
      if (parts.empty()) want(slot.name);
      for (const StoredPart& part : parts) want(part.tensor);
    }
  std::vector<std::string> out;
  for (const std::string& name : names)
    if (!wanted.contains(name)) out.push_back(name);
  return out;
}

}  // namespace heddle::checkpoint
