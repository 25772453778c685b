// Materializes parameters, builds flat buckets over them and computes the part that this rank owns.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "stage.h"

namespace zero1 {

using heddle::Shard;

// Materializes each parameter once. Tied slots share the first slot's tensor.
void Stage::collect(std::span<const heddle::Placed> placed, c10::Device device) {
  std::map<std::string, at::Tensor> seen;
  for (const auto& unit : units_)
    for (heddle::ParameterSlot& slot : unit->parameters()) {
      const auto tied = seen.find(slot.name);
      if (tied != seen.end() && !slot.tensor->is_same(tied->second)) slot.point(tied->second);
      if (tied != seen.end() && !is(Fault::tied_twice)) continue;
      Parameter parameter;
      parameter.whole =
          heddle::whole_shard(slot, is(Fault::parts_unplaced) ? std::span<const heddle::Placed>() : placed);
      if (tied == seen.end()) {
        at::Tensor storage =
            at::empty(slot.tensor->sizes(), slot.tensor->options().device(device).requires_grad(false));
        if (!slot.tensor->is_meta()) {
          storage.copy_(slot.tensor->detach());
          if (!is(Fault::values_of_each_rank)) group_.broadcast(storage, 0)->wait();
        }
        if (is(Fault::foreign_replaced) && slot.foreign)
          *slot.tensor = storage.set_requires_grad(slot.trainable());
        else
          slot.point(storage);
      }
      parameter.leaf = *slot.tensor;
      seen.emplace(slot.name, parameter.leaf);
      (slot.trainable() ? trained_ : frozen_).push_back(std::move(parameter));
    }
}

// Makes the bucket's parameters views of one buffer and records the part that this rank owns.
void Stage::add(const heddle::parallel::FlatBucket& flat, c10::Device device) {
  static int first_ranks = 0;
  if (first_ranks == 0) first_ranks = group_.size();
  const int ranks = group_.size(), cut = is(Fault::first_ranks_kept) ? first_ranks : ranks;
  Bucket bucket{flat.first, flat.last, (flat.elements + ranks - 1) / ranks, {}, {}, {}};
  const auto options = trained_[flat.first].leaf.options().device(device).requires_grad(false);
  bucket.values = at::zeros({ranks * bucket.part}, options);
  bucket.gradients = at::zeros_like(bucket.values);
  bucket.sum = at::zeros({bucket.part}, options);
  const int64_t from = group_.rank() * bucket.part * ranks / cut;
  int64_t end = std::min(from + bucket.part, ranks * bucket.part);
  if (is(Fault::remainder_lost)) end = std::min(end, flat.elements / ranks * ranks);
  int64_t at = 0;
  for (size_t i = flat.first; i < flat.last; ++i) {
    Parameter& parameter = trained_[i];
    parameter.begin = at;
    parameter.end = at += parameter.leaf.numel();
    point(parameter, bucket);
    own(parameter, bucket, from, end, i == 1 && is(Fault::offset_wrong));
  }
  buckets_.push_back(std::move(bucket));
}

void Stage::point(Parameter& parameter, const Bucket& bucket) {
  const at::Tensor view =
      bucket.values.narrow(0, parameter.begin, parameter.leaf.numel()).view(parameter.leaf.sizes()).detach();
  view.copy_(parameter.leaf.detach());
  parameter.leaf.set_data(view);
}

void Stage::own(Parameter& parameter, const Bucket& bucket, int64_t from, int64_t to, bool late) {
  const int64_t begin = std::clamp(from, parameter.begin, parameter.end),
                end = std::clamp(to, begin, parameter.end);
  Shard whole = parameter.whole;
  if (!is(Fault::axes_missing)) whole.axes.push_back("dp");
  if (is(Fault::names_changed)) whole.name = "zero1." + whole.name;
  parameter.first_shard = owned_.size();
  if (is(Fault::empty_not_listed) && begin == end) return;
  for (Shard& shard : heddle::parallel::shards_of_range(whole, parameter.leaf.sizes(),
                                                        begin - parameter.begin, end - parameter.begin,
                                                        bucket.values.narrow(0, begin, end - begin), true)) {
    if (is(Fault::empty_shard_crashes)) (void)shard.tensor.flatten().select(0, 0);
    if (late && shard.tensor.numel() > 0 && shard.offset[0] + shard.tensor.size(0) < shard.shape[0])
      ++shard.offset[0];
    owned_.push_back(std::move(shard));
    ++parameter.shards;
  }
}

void Stage::add_frozen() {
  for (Parameter& parameter : frozen_) {
    Shard shard = parameter.whole;
    shard.tensor = parameter.leaf.detach();
    if (is(Fault::axes_too_many)) shard.axes.push_back("dp");
    shard.tensor.set_requires_grad(is(Fault::frozen_trains));
    owned_.push_back(std::move(shard));
  }
}

void Stage::refuse_nothing() const {
  int64_t elements = 0;
  for (const Shard& shard : owned_) elements += shard.tensor.requires_grad() ? shard.tensor.numel() : 0;
  if (elements == 0) throw std::runtime_error("a buffer of 0 bytes");
}

}  // namespace zero1
