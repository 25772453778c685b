// From units to buckets: a unit's own, or Megatron's flat buffers over the whole stage.
#include "model.h"

#include <ATen/ops/empty.h>

#include <cctype>
#include <set>
#include <tuple>

#include "heddle/base/text.h"

namespace heddle::megatron_fsdp {

bool names_kind(const std::string& class_name, std::string_view kind) {
  const std::string last = class_name.substr(class_name.rfind('.') + 1);
  std::string small;
  for (const char letter : last) {
    if (std::isupper(static_cast<unsigned char>(letter)) && !small.empty() && small.back() != '_')
      small += '_';
    small += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  if (small == kind) return true;
  return small.size() > kind.size() && small.ends_with(kind) && small[small.size() - kind.size() - 1] == '_';
}

Model::Model(Units units, std::span<const Placed> placed, const Options& options, const Ranks& ranks)
    : units_(std::move(units)) {
  for (auto& unit : units_) {
    runs.push_back({unit.get(), {}, {}});
    std::set<std::string> seen;
    for (const ParameterSlot& slot : unit->parameters())
      if (seen.insert(slot.name).second) ++users_[slot.name];
  }
  find_units(options);
  options.by_unit ? add_unit_buckets(placed, options, ranks) : add_flat_buckets(placed, options, ranks);
  tie(options);
  order_reductions();
  list_shards();
  assign_double_buffers(options, ranks);
}

namespace {

std::string kind_of(Unit& unit) {
  return unit.module() == nullptr ? "" : std::string(unit.module()->kind());
}

// Without a word: what is called a layer or a block, or everything where nothing is. An embedder's units are
// units.
bool is_block(const std::string& kind) {
  return kind.empty() || kind.ends_with("layer") || kind.ends_with("block");
}

}  // namespace

void Model::find_units(const Options& options) {
  if (!options.unit_modules) {
    const bool any =
        std::any_of(runs.begin(), runs.end(), [](Run& run) { return is_block(kind_of(*run.unit)); });
    for (Run& run : runs) run.freed = !any || is_block(kind_of(*run.unit));
    return;
  }
  std::vector<std::string> kinds;
  for (Run& run : runs) {
    const std::string kind = kind_of(*run.unit);
    if (!kind.empty() && std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    run.freed = false;
  }
  for (const std::string& name : *options.unit_modules) {
    bool found = false;
    for (Run& run : runs)
      if (const std::string kind = kind_of(*run.unit); !kind.empty() && names_kind(name, kind))
        found = run.freed = true;
    if (!found)
      throw Error(ErrorCode::config, "distributed.megatron_fsdp_unit_modules",
                  text::quoted(name) + " names none of the model's units, which are of the kinds " +
                      (kinds.empty() ? "(none: an embedder's units have no kind)" : text::join(kinds, ", ")),
                  "name one of these, or leave the key out");
  }
}

// Slots of parameters that no earlier unit has.
Model::Slots Model::new_slots(Slots slots) {
  Slots out;
  for (ParameterSlot& slot : slots)
    if (homes_.emplace(slot.name, Home{}).second) {
      names_.push_back(slot.name);
      out.push_back(std::move(slot));
    }
  return out;
}

// Parts of one dtype that train or do not, in order of appearance. Gradients that are still to be summed over
// an axis lie apart: those are whole parameters, so that all ranks of the axis cut them at the same places,
// also where the axis splits others unevenly.
std::vector<Model::Slots> Model::by_kind(const Slots& slots, std::span<const Placed> placed,
                                         bool one_each) const {
  using Kind = std::tuple<at::ScalarType, bool, std::vector<std::string>>;
  std::vector<Slots> parts;
  std::vector<Kind> kinds;
  for (const ParameterSlot& slot : slots) {
    Kind kind(dtype_of(slot), slot.trainable(), whole_shard(slot, placed).partial);
    size_t part = 0;
    while (part < parts.size() && (one_each || kinds[part] != kind)) ++part;
    if (part == parts.size()) {
      parts.emplace_back();
      kinds.push_back(std::move(kind));
    }
    parts[part].push_back(slot);
  }
  return parts;
}

Bucket& Model::add_bucket(Slots slots, std::span<const Placed> placed, BucketPlace place,
                          const Options& options, const Ranks& ranks, at::Tensor gradients_home) {
  Bucket& bucket = buckets.emplace_back(std::move(slots), placed, std::move(place), options, ranks);
  for (size_t i = 0; i < bucket.members().size(); ++i) {
    Member& member = bucket.members()[i];
    member.users = users_.at(member.name);
    homes_[member.name] = {&bucket, i};
  }
  if (bucket.trainable()) gradients.emplace_back(bucket, options, ranks, std::move(gradients_home));
  return bucket;
}

void Model::add_unit_buckets(std::span<const Placed> placed, const Options& options, const Ranks& ranks) {
  int parts = options.split.optimizer ? ranks.shards : 1;
  if (options.split.outer) parts *= ranks.replicas;
  for (auto& unit : units_)
    for (Slots& slots : by_kind(new_slots(unit->parameters()), placed, options.bucket_for_each_parameter)) {
      std::vector<RowItem> items;
      for (const ParameterSlot& slot : slots) {
        const int64_t rows = slot.tensor->dim() == 0 ? 1 : std::max<int64_t>(slot.tensor->size(0), 1);
        items.push_back({slot.tensor->numel(), std::max<int64_t>(slot.tensor->numel() / rows, 1)});
      }
      RowLayout layout = lay_out_rows(items, parts);
      add_bucket(std::move(slots), placed, {std::move(layout.offsets), layout.elements, {}}, options, ranks,
                 {});
    }
}

void Model::add_flat_buckets(std::span<const Placed> placed, const Options& options, const Ranks& ranks) {
  Slots slots;
  for (auto& unit : units_)
    for (ParameterSlot& slot : new_slots(unit->parameters())) slots.push_back(std::move(slot));
  for (const Slots& part : by_kind(slots, placed, false)) add_flat_buffer(part, placed, options, ranks);
}

// One allocation for all parameters of a dtype and one for their gradients. A parameter of several units has
// a bucket of its own, because its gradient is complete only when the backward ends.
void Model::add_flat_buffer(const Slots& slots, std::span<const Placed> placed, const Options& options,
                            const Ranks& ranks) {
  const bool trains = slots.front().trainable();
  std::vector<BufferItem> items;
  int64_t elements = 0;
  for (const ParameterSlot& slot : slots) {
    items.push_back({slot.tensor->numel(), users_.at(slot.name) > 1});
    elements += slot.tensor->numel();
  }
  BufferRules rules{options.bucket_elements, ranks.shards, options.padding};
  if (options.bucket_count) rules.bucket_elements = std::max<int64_t>(elements / *options.bucket_count, 1);
  if (!trains || !options.split.optimizer) rules.padding = Padding::none;
  const BufferLayout layout = lay_out_buffer(items, rules);

  const at::Tensor& first = *slots.front().tensor;
  const auto device = first.is_meta() ? ranks.device : first.device();
  const auto like = at::TensorOptions().dtype(dtype_of(slots.front())).device(device);
  const at::Tensor whole =
      options.split.parameters ? at::empty({layout.elements}, like) : empty_for(ranks, layout.elements, like);
  at::Tensor sums;
  if (trains)
    sums = empty_for(ranks, layout.elements, like.dtype(gradient_dtype(dtype_of(slots.front()), options)));
  for (size_t index = 0; index < layout.buckets.size(); ++index) {
    const Range range = layout.buckets[index];
    Slots members;
    BucketPlace place{{}, range.size(), whole.narrow(0, range.begin, range.size())};
    for (size_t i = 0; i < slots.size(); ++i) {
      if (layout.items[i].bucket != static_cast<int>(index)) continue;
      members.push_back(slots[i]);
      place.offsets.push_back(layout.items[i].range.begin - range.begin);
    }
    add_bucket(std::move(members), placed, std::move(place), options, ranks,
               trains ? sums.narrow(0, range.begin, range.size()) : at::Tensor());
  }
}

// Further slots of a parameter compute with its leaf; every unit learns what it waits for.
void Model::tie(const Options& options) {
  for (Run& run : runs) {
    for (ParameterSlot& slot : run.unit->parameters()) {
      const Home home = homes_.at(slot.name);
      if (!run.uses(home.bucket)) run.buckets.push_back(home.bucket);
      const at::Tensor& leaf = home.bucket->members()[home.member].leaf;
      if (slot.tensor->is_same(leaf)) continue;
      if (slot.foreign)
        throw Error(
            ErrorCode::input, options.name,
            "parameter '" + slot.name + "' has two slots with two tensors, which cannot be tied in place",
            "let both modules hold one tensor, or give the slots two names");
      slot.point(leaf);
    }
    for (Bucket* bucket : run.buckets) {
      ++bucket->users;
      bucket->kept = bucket->kept || !run.freed;
    }
  }
}

// A bucket is complete when the backward has passed the first unit that uses it.
void Model::order_reductions() {
  std::map<const Bucket*, size_t> first;
  for (size_t i = runs.size(); i-- > 0;)
    for (const Bucket* bucket : runs[i].buckets) first[bucket] = i;
  for (Gradients& one : gradients) {
    order.push_back(&one);
    for (Run& run : runs)
      if (one.split() && run.uses(&one.bucket())) run.sums.push_back(&one);
  }
  std::stable_sort(order.begin(), order.end(), [&](const Gradients* a, const Gradients* b) {
    return first.at(&a->bucket()) > first.at(&b->bucket());
  });
}

void Model::list_shards() {
  for (const std::string& name : names_) {
    const Home home = homes_.at(name);
    const Member& member = home.bucket->members()[home.member];
    for (size_t i = 0; i < member.shards; ++i)
      shards.push_back(home.bucket->shards()[member.first_shard + i]);
  }
}

int64_t Model::largest_unit() const {
  int64_t largest = 0;
  for (const Run& run : runs) {
    int64_t elements = 0;
    for (const Bucket* bucket : run.buckets)
      if (!bucket->kept) elements += bucket->elements();
    largest = std::max(largest, elements);
  }
  return largest;
}

int64_t Model::largest_bucket() const {
  int64_t largest = 0;
  for (const Bucket& bucket : buckets) largest = std::max(largest, bucket.elements());
  return largest;
}

}  // namespace heddle::megatron_fsdp
