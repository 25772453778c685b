// Layout of parameters in a bucket, and gathers of split parameters.
#include "gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <utility>

#include "heddle/parallel/flat.h"
#include "heddle/transport/shared_memory.h"

namespace heddle::megatron_fsdp {
namespace {

// Frozen parameters are split only if parameters are, because they have no other state.
Split split_of(const Options& options, const sharding::Groups& ranks, bool trainable) {
  if (!trainable && !options.split.parameters) return {};
  Split split = options.split;
  split.outer = split.outer && trainable && ranks.replicas > 1;
  return split;
}

at::Tensor view_of(const at::Tensor& flat, int64_t begin, at::IntArrayRef sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return flat.narrow(0, begin, elements).view(sizes).variable_data();
}

}  // namespace

at::ScalarType dtype_of(const ParameterSlot& slot) {
  return slot.compute.value_or(slot.tensor->scalar_type());
}

at::ScalarType main_dtype_of(at::ScalarType parameters, std::optional<at::ScalarType> asked) {
  return asked ? c10::promoteTypes(parameters, *asked) : parameters;
}

at::Tensor empty_for(const sharding::Groups& ranks, int64_t elements, const at::TensorOptions& options) {
  if (ranks.gather == nullptr) return at::empty({elements}, options);
  return mesh::shared_empty(*ranks.gather, {elements}, options);
}

Bucket::Bucket(std::vector<ParameterSlot> slots, std::span<const Placed> placed, BucketPlace place,
               const Options& options, const sharding::Groups& ranks, std::shared_ptr<Shared> shared,
               at::Tensor gradients)
    : ranks_(ranks),
      split_(split_of(options, ranks, slots.front().trainable())),
      elements_(place.elements),
      trainable_(slots.front().trainable()),
      whole_(std::move(place.whole)) {
  at::NoGradGuard no_gradients;
  part_ = split_.optimizer ? part_of({0, elements_}, ranks.shards, ranks.shard) : Range{0, elements_};
  held_ = split_.outer ? part_of(part_, ranks.replicas, ranks.replica) : part_;
  if (!whole_.defined()) {
    const at::Tensor& first = *slots.front().tensor;
    const auto device = first.is_meta() ? ranks.device : first.device();
    const auto like = at::TensorOptions().dtype(dtype_of(slots.front())).device(device);
    whole_ = split_.parameters ? at::empty({elements_}, like) : empty_for(ranks, elements_, like);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    const at::Tensor& tensor = *slots[i].tensor;
    const Range range{place.offsets[i], place.offsets[i] + tensor.numel()};
    members_.push_back({slots[i].name, tensor.sizes().vec(), {}, range});
  }
  std::vector<Shard> wholes;
  for (const ParameterSlot& slot : slots) wholes.push_back(whole_shard(slot, placed));
  const bool filled = std::any_of(slots.begin(), slots.end(), [](auto& s) { return !s.tensor->is_meta(); });
  fill(slots, ranks);
  make_main(trainable_ ? options.main_parameters : std::nullopt, filled, ranks);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (split_.optimizer) wholes[i].axes.push_back(ranks.axes.shards);
    if (split_.outer) wholes[i].axes.push_back(ranks.axes.copies);
    members_[i].first_shard = shards_.size();
    add_shards(members_[i], wholes[i]);
    members_[i].shards = shards_.size() - members_[i].first_shard;
  }
  if (trainable_) set_gradients(std::make_unique<Gradients>(*this, options, shared, std::move(gradients)));
  if (!split_.parameters) return;
  storage_ = sharding::TransientStorage(whole_);
  storage_.release();
}

std::vector<sharding::Parameter> Bucket::parameters() const {
  std::vector<sharding::Parameter> out;
  for (const Member& member : members_) {
    const auto first = shards_.begin() + static_cast<std::ptrdiff_t>(member.first_shard);
    out.push_back({member.name, member.leaf, {first, first + static_cast<std::ptrdiff_t>(member.shards)}});
  }
  return out;
}

// Copies existing values into the leaves, from the first rank.
void Bucket::fill(std::vector<ParameterSlot>& slots, const sharding::Groups& ranks) {
  for (size_t i = 0; i < slots.size(); ++i) {
    at::Tensor leaf = view_of(whole_, members_[i].range.begin, members_[i].sizes);
    if (!slots[i].tensor->is_meta()) leaf.copy_(sharding::first_values(*slots[i].tensor, ranks));
    members_[i].leaf = slots[i].point(std::move(leaf));
  }
}

void Bucket::make_main(std::optional<at::ScalarType> dtype, bool filled, const sharding::Groups& ranks) {
  const at::ScalarType type = main_dtype_of(whole_.scalar_type(), dtype);
  const at::Tensor mine = whole_.narrow(0, held_.begin, held_.size());
  const bool alias = type == whole_.scalar_type() && !split_.parameters;
  main_ = alias ? mine : empty_for(ranks, held_.size(), whole_.options().dtype(type));
  if (filled && !alias) main_.copy_(mine);
  if (split_.outer) inner_ = at::empty({part_.size()}, whole_.options());
}

void Bucket::add_shards(const Member& member, const Shard& whole) {
  const Range mine = meet(member.range, held_);
  const Range inside{mine.begin - member.range.begin, mine.end - member.range.begin};
  const at::Tensor held = main_.narrow(0, mine.size() == 0 ? 0 : mine.begin - held_.begin, mine.size());
  for (Shard& shard :
       parallel::shards_of_range(whole, member.sizes, inside.begin, inside.end, held, trainable_))
    shards_.push_back(std::move(shard));
}

bool Bucket::changed() {
  stale_ = true;
  return split_.optimizer || !main_.is_alias_of(whole_);
}

// Each replica holds a part of this rank's part.
void Bucket::gather_inner_part() {
  if (!std::exchange(stale_, false)) return;
  const Range mine{held_.begin - part_.begin, held_.end - part_.begin};
  const at::Tensor own = inner_.narrow(0, mine.begin, mine.size());
  own.copy_(main_);
  ranks_.across->all_gather(inner_, own)->wait();
}

std::unique_ptr<Work> Bucket::gather() {
  if (split_.parameters) storage_.acquire();
  const at::Tensor own = whole_.narrow(0, part_.begin, part_.size());
  at::Tensor source = own;
  if (split_.outer) {
    gather_inner_part();
    source = inner_;
  } else if (split_.parameters && main_.scalar_type() == whole_.scalar_type()) {
    source = main_;
  } else if (!main_.is_alias_of(whole_)) {
    own.copy_(main_);
  }
  if (!split_.optimizer || elements_ == 0) return nullptr;
  if (ranks_.gather != nullptr) return ranks_.gather->all_gather(whole_, source);
  if (!source.is_alias_of(whole_)) whole_.copy_(source);
  return nullptr;
}

}  // namespace heddle::megatron_fsdp
