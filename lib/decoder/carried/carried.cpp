// Determines the tensors between layers from the description; tensors that a layer does not make pass
// through.
#include "lib/decoder/carried/carried.h"

#include <algorithm>
#include <set>
#include <utility>

namespace heddle::decoder {
namespace {

using Kind = CarriedTensor::Kind;

// Returns the layer whose keys this layer uses; empty: its own.
std::optional<int64_t> source_of(const Layer& layer) {
  const auto* attention = std::get_if<Attention>(&layer.mixer);
  return attention == nullptr ? std::nullopt : attention->keys_of_layer;
}

}  // namespace

const Indexer* indexer_of(const Layer& layer) {
  const auto* latent = std::get_if<Latent>(&layer.mixer);
  return latent != nullptr && latent->indexer ? &*latent->indexer : nullptr;
}

std::vector<CarriedTensor> carried_to(const Model& model, int64_t layer) {
  std::vector<CarriedTensor> out;
  const auto count = static_cast<int64_t>(model.layers.size());
  if (model.block_residuals)
    for (int64_t first = 0; first < layer; first += model.block_residuals->size)
      out.push_back({Kind::block, first});
  if (layer >= count) return out;
  const Indexer* indexer = indexer_of(model.layers[static_cast<size_t>(layer)]);
  if (indexer != nullptr && indexer->of_layer_before) out.push_back({Kind::chosen_keys, layer - 1});
  if (model.layer_inputs.width > 0) out.push_back({Kind::layer_inputs, layer});
  std::set<int64_t> sources;
  for (int64_t later = layer; later < count; ++later)
    if (const auto source = source_of(model.layers[static_cast<size_t>(later)]); source && *source < layer)
      sources.insert(*source);
  for (const int64_t source : sources) {
    out.push_back({Kind::keys, source});
    out.push_back({Kind::values, source});
  }
  return out;
}

Carried::Carried(const Model& model, int64_t layer)
    : layer_(layer),
      width_(model.layer_inputs.width),
      in_(carried_to(model, layer)),
      out_(carried_to(model, layer + 1)) {
  const Layer& form = model.layers[static_cast<size_t>(layer)];
  const auto leaves = [&](Kind kind) {
    return std::find(out_.begin(), out_.end(), CarriedTensor{kind, layer}) != out_.end();
  };
  if (indexer_of(form) != nullptr) {
    chosen = std::make_shared<ChosenKeys>();
    chosen->for_next = leaves(Kind::chosen_keys);
  }
  const std::optional<int64_t> source = source_of(form);
  source_ = source.value_or(layer);
  if (source || leaves(Kind::keys)) {
    shared = std::make_shared<SharedKeys>();
    shared->of_other = source.has_value();
    shared->for_later = leaves(Kind::keys);
  }
}

void Carried::take(Tensors carried) {
  held_ = std::move(carried);
  held_.resize(in_.size());
  blocks.clear();  // a recomputed forward may stop before give()
  for (size_t i = 0; i < in_.size(); ++i) {
    const CarriedTensor& one = in_[i];
    if (one.kind == Kind::block) {
      blocks.push_back(held_[i]);
    } else if (one.kind == Kind::chosen_keys) {
      chosen->keys = std::move(held_[i]);
    } else if (one.kind == Kind::layer_inputs) {
      const at::Tensor all = std::exchange(held_[i], {});
      const int64_t later = all.size(1) - width_;
      if (later == 0) {
        own_inputs = all;
        continue;
      }
      std::vector<at::Tensor> both = all.split_with_sizes({width_, later}, 1);
      own_inputs = std::move(both[0]), later_inputs_ = std::move(both[1]);
    } else if (one.layer == source_) {
      (one.kind == Kind::keys ? shared->keys : shared->values) = held_[i];
    }
  }
}

// A tensor that passes through stays the same tensor, so that its node runs in its own unit's backward.
at::Tensor Carried::leaving(const CarriedTensor& tensor) {
  if (tensor.kind == Kind::chosen_keys) return std::exchange(chosen->keys, {});
  if (tensor.kind == Kind::layer_inputs) return std::exchange(later_inputs_, {});
  if (tensor.kind == Kind::block && tensor.layer == layer_) return blocks.back();
  if (tensor.layer == layer_)
    return std::exchange(tensor.kind == Kind::keys ? shared->keys : shared->values, {});
  const auto found = std::find(in_.begin(), in_.end(), tensor);
  return std::exchange(held_[static_cast<size_t>(found - in_.begin())], {});
}

Tensors Carried::give() {
  Tensors out;
  for (const CarriedTensor& one : out_) out.push_back(leaving(one));
  held_.clear();
  blocks.clear();
  own_inputs = at::Tensor();
  if (shared) shared->keys = shared->values = at::Tensor();
  return out;
}

}  // namespace heddle::decoder
