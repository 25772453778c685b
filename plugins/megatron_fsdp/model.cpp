// Assignment of parameters to buckets: per unit, or Megatron's flat buffers over the whole stage.
#include "model.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>
#include <utility>

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

namespace {

std::string kind_of(Unit& unit) {
  return unit.module() == nullptr ? "" : std::string(unit.module()->kind());
}

// Returns true for units whose kind is a layer or a block, and for units without a kind (an embedder's).
// Default if no classes are set.
bool is_block(const std::string& kind) {
  return kind.empty() || kind.ends_with("layer") || kind.ends_with("block");
}

}  // namespace

std::vector<sharding::Reshard> find_units(const Units& units, const Options& options) {
  using sharding::Reshard;
  std::vector<Reshard> out(units.size(), Reshard::after_last_backward);
  if (!options.unit_modules) {
    const bool any =
        std::any_of(units.begin(), units.end(), [](const auto& unit) { return is_block(kind_of(*unit)); });
    for (size_t i = 0; i < units.size(); ++i)
      if (!any || is_block(kind_of(*units[i]))) out[i] = Reshard::after_forward;
    return out;
  }
  std::vector<std::string> kinds;
  for (const auto& unit : units)
    if (const std::string kind = kind_of(*unit);
        !kind.empty() && std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      kinds.push_back(kind);
  for (const std::string& name : *options.unit_modules) {
    bool found = false;
    for (size_t i = 0; i < units.size(); ++i)
      if (const std::string kind = kind_of(*units[i]); !kind.empty() && names_kind(name, kind)) {
        found = true;
        out[i] = Reshard::after_forward;
      }
    if (!found)
      throw Error(ErrorCode::config, "distributed.megatron_fsdp_unit_modules",
                  text::quoted(name) + " matches none of the model's units, whose kinds are " +
                      (kinds.empty() ? "(none: an embedder's units have no kind)" : text::join(kinds, ", ")),
                  "set one of these kinds, or remove the key");
  }
  return out;
}

namespace {

using Buckets = std::vector<std::unique_ptr<sharding::Bucket>>;
using sharding::Slots;

// Returns the axes whose ranks hold parts of different sizes of a parameter. All ranks of an axis compute the
// same result.
std::vector<std::string> uneven_axes(const ParameterSlot& slot, const Place& place) {
  std::vector<std::string> axes;
  for (const Placed& one : place.placed)
    if (one.parameter == slot.name && one.kind == Placed::Kind::split &&
        slot.tensor->size(one.dim) * place.mesh.size(one.axis) != one.whole)
      axes.push_back(one.axis);
  return axes;
}

// Groups parameters by dtype, reduction and trainability, in order of appearance. Ranks with the same copy of
// a parameter must split it at the same places, so their buckets need the same layout. Parts of uneven sizes
// and partial gradients therefore get separate buckets.
std::vector<Slots> by_kind(const Slots& slots, const Place& place, bool one_each) {
  using Axes = std::vector<std::string>;
  using Kind = std::tuple<at::ScalarType, bool, Axes, Axes, const Ranks*>;
  std::vector<Slots> parts;
  std::vector<Kind> kinds;
  for (const ParameterSlot& slot : slots) {
    Kind kind(dtype_of(slot), slot.trainable(), whole_shard(slot, place.placed).partial,
              uneven_axes(slot, place), &place.ranks(slot.name));
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

void add_bucket(Slots slots, BucketPlace where, const Place& place, at::Tensor gradients, Buckets& out) {
  const Ranks& ranks = place.ranks(slots.front().name);
  out.push_back(std::make_unique<Bucket>(std::move(slots), place.placed, std::move(where), place.options,
                                         ranks.groups, ranks.shared, std::move(gradients)));
}

// Stacked matrices may be split between the rows of each matrix.
int64_t elements_of_row(const at::Tensor& tensor) {
  int64_t rows = 1;
  for (int64_t dim = 0; dim < std::max<int64_t>(tensor.dim() - 1, std::min<int64_t>(tensor.dim(), 1)); ++dim)
    rows *= std::max<int64_t>(tensor.size(dim), 1);
  return std::max<int64_t>(tensor.numel() / rows, 1);
}

void add_unit_buckets(const Units& units, const Place& place, Buckets& out) {
  const Options& options = place.options;
  for (const Slots& fresh : sharding::new_slots(units))
    for (Slots& slots : by_kind(fresh, place, options.bucket_for_each_parameter)) {
      const sharding::Groups& groups = place.ranks(slots.front().name).groups;
      int parts = options.split.optimizer ? groups.shards : 1;
      if (options.split.outer) parts *= groups.replicas;
      std::vector<RowItem> items;
      for (const ParameterSlot& slot : slots)
        items.push_back({slot.tensor->numel(), elements_of_row(*slot.tensor)});
      RowLayout layout = lay_out_rows(items, parts);
      add_bucket(std::move(slots), {std::move(layout.offsets), layout.elements, {}}, place, {}, out);
    }
}

// Allocates one buffer for all parameters of a dtype and one for their gradients. A parameter of several
// units gets a separate bucket, because its gradient is complete only when the backward ends.
void add_flat_buffer(const Slots& slots, const std::map<std::string, int>& users, const Place& place,
                     Buckets& out) {
  const Options& options = place.options;
  const sharding::Groups& ranks = place.ranks(slots.front().name).groups;
  const bool trains = slots.front().trainable();
  std::vector<BufferItem> items;
  int64_t elements = 0;
  for (const ParameterSlot& slot : slots) {
    items.push_back({slot.tensor->numel(), users.at(slot.name) > 1});
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
    BucketPlace where{{}, range.size(), whole.narrow(0, range.begin, range.size())};
    for (size_t i = 0; i < slots.size(); ++i) {
      if (layout.items[i].bucket != static_cast<int>(index)) continue;
      members.push_back(slots[i]);
      where.offsets.push_back(layout.items[i].range.begin - range.begin);
    }
    add_bucket(std::move(members), std::move(where), place,
               trains ? sums.narrow(0, range.begin, range.size()) : at::Tensor(), out);
  }
}

void add_flat_buckets(const Units& units, const Place& place, Buckets& out) {
  Slots slots;
  for (Slots& fresh : sharding::new_slots(units))
    for (ParameterSlot& slot : fresh) slots.push_back(std::move(slot));
  const std::map<std::string, int> users = sharding::users_of(units);
  for (const Slots& part : by_kind(slots, place, false)) add_flat_buffer(part, users, place, out);
}

}  // namespace

sharding::Model make_model(Units units, const Place& place) {
  Buckets buckets;
  std::vector<sharding::Reshard> reshard = find_units(units, place.options);
  place.options.by_unit ? add_unit_buckets(units, place, buckets) : add_flat_buckets(units, place, buckets);
  sharding::Model model(std::move(units), std::move(buckets), std::move(reshard), place.options.name);
  int64_t number = 0;
  for (sharding::Gradients* gradients : model.order) static_cast<Gradients*>(gradients)->number = number++;
  return model;
}

int64_t largest_unit(const sharding::Model& model) {
  int64_t largest = 0;
  for (const auto& turn : model.turns) {
    int64_t elements = 0;
    for (const auto& use : turn.uses)
      if (!use.bucket->stays()) elements += use.bucket->elements();
    largest = std::max(largest, elements);
  }
  return largest;
}

int64_t largest_bucket(const sharding::Model& model) {
  int64_t largest = 0;
  for (const auto& bucket : model.buckets) largest = std::max(largest, bucket->elements());
  return largest;
}

}  // namespace heddle::megatron_fsdp
