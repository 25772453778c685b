// Each rank compares its own tensors; whether the parts of the ranks fit is asked only after a fault.
#include "core/parallel/checks/placed_check.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <sstream>

#include "heddle/base/error.h"

namespace heddle::parallel {
namespace {

[[noreturn]] void blame_split(const std::string& parallelizer, const std::string& fault) {
  throw Error(ErrorCode::plugin_failed, "IParallelizer::apply",
              "the parallelizer '" + parallelizer + "' breaks a rule of apply(): " + fault,
              "a Placed says which dim of which parameter is split, this rank's first index along it and the "
              "size of the whole dim (heddle/parallel/shard.h); what is split has one, and nothing else");
}

std::string in_brackets(const std::vector<int64_t>& sizes) {
  std::ostringstream out;
  out << at::IntArrayRef(sizes);
  return out.str();
}

// Returns the fault of one part, "" if none, and the sizes that `now` should have had before it.
std::string placement_error(const Placed& one, const std::vector<int64_t>& before,
                            const std::vector<int64_t>& now, std::vector<int64_t>& explained) {
  if (one.kind == Placed::Kind::partial_gradient) return "";
  const std::string it = "it places '" + one.parameter + "' ";
  if (one.dim < 0 || one.dim >= static_cast<int64_t>(now.size()))
    return it + "along dim " + std::to_string(one.dim) + " of " + in_brackets(before);
  const auto dim = static_cast<size_t>(one.dim);
  if (one.whole != before[dim])
    return it + "as a part of " + std::to_string(one.whole) + " indices of dim " + std::to_string(dim) +
           ", and before it acted the parameter was " + in_brackets(before);
  if (one.offset < 0 || one.offset + now[dim] > one.whole)
    return it + "from index " + std::to_string(one.offset) + " of dim " + std::to_string(dim) +
           " on, where " + std::to_string(now[dim]) + " of " + std::to_string(one.whole) +
           " indices do not fit";
  explained[dim] = before[dim];
  return "";
}

}  // namespace

PlacedCheck::PlacedCheck(const Units& units) : before_(sizes_of(units)) {}

PlacedCheck::Sizes PlacedCheck::sizes_of(const Units& units) {
  Sizes sizes;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) sizes[slot.name] = slot.tensor->sizes().vec();
  return sizes;
}

void PlacedCheck::check(const Units& units, const std::string& parallelizer,
                        const std::vector<Placed>& placed) const {
  const Sizes now = sizes_of(units);
  Sizes explained = now;
  for (const Placed& one : placed) {
    const auto before = before_.find(one.parameter), after = now.find(one.parameter);
    if (before == before_.end() || after == now.end())
      blame_split(parallelizer, "it places '" + one.parameter + "', which is no parameter of the units");
    if (before->second.size() != after->second.size())
      blame_split(parallelizer, "it gives '" + one.parameter + "' another number of dims");
    const std::string fault = placement_error(one, before->second, after->second, explained[one.parameter]);
    if (!fault.empty()) blame_split(parallelizer, fault);
  }
  for (const auto& [name, sizes] : before_) {
    const auto after = explained.find(name);
    if (after == explained.end()) blame_split(parallelizer, "it took away the parameter '" + name + "'");
    if (after->second != sizes)
      blame_split(parallelizer, "'" + name + "' was " + in_brackets(sizes) + " and is " +
                                    in_brackets(now.at(name)) + " now, and no Placed says so");
  }
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.tensor->sizes() != at::IntArrayRef(now.at(slot.name)))
        blame_split(parallelizer, "the slots of the tied parameter '" + slot.name + "' have different sizes");
}

namespace {

// Checks the offsets and sizes of one part on all ranks of its axis. Returns the fault, or "".
std::string tiles_error(const Placed& one, const int64_t* all, int64_t ranks, int64_t stride) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) parts.emplace_back(all[rank * stride], all[rank * stride + 1]);
  std::sort(parts.begin(), parts.end());
  int64_t end = 0;
  for (const auto& [offset, size] : parts) {
    if (offset != end)
      return "its ranks along " + one.axis + " hold the indices of dim " + std::to_string(one.dim) + " of '" +
             one.parameter + "' " + (offset < end ? "twice" : "not all") + ": a part begins at " +
             std::to_string(offset) + ", and the one before ends at " + std::to_string(end);
    end = offset + size;
  }
  return end == one.whole ? ""
                          : "its ranks along " + one.axis + " hold " + std::to_string(end) + " of " +
                                std::to_string(one.whole) + " indices of dim " + std::to_string(one.dim) +
                                " of '" + one.parameter + "'";
}

}  // namespace

void check_tiles(const Split& split, const DeviceMesh& mesh) {
  std::map<std::string, std::vector<size_t>> by_axis;  // the same axes on every rank: a parallelizer's own
  for (size_t i = 0; i < split.placed.size(); ++i)
    if (split.placed[i].kind == Placed::Kind::split) by_axis[split.placed[i].axis].push_back(i);
  for (const auto& [axis, parts] : by_axis) {
    Communicator& ranks = mesh.group(axis);
    const auto count = static_cast<int64_t>(parts.size());
    const at::Tensor counts = at::empty({2}, at::kLong);
    counts.mutable_data_ptr<int64_t>()[0] = count;
    counts.mutable_data_ptr<int64_t>()[1] = -count;
    ranks.all_reduce(counts, Reduce::max)->wait();
    const std::string& name = split.by[parts.front()];
    if (counts.const_data_ptr<int64_t>()[0] != count || counts.const_data_ptr<int64_t>()[1] != -count)
      blame_split(name, "its ranks along " + axis + " place different numbers of parameters");
    const at::Tensor own = at::empty({2 * count}, at::kLong),
                     all = at::empty({ranks.size() * 2 * count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      own.mutable_data_ptr<int64_t>()[2 * i] = split.placed[parts[static_cast<size_t>(i)]].offset;
      own.mutable_data_ptr<int64_t>()[2 * i + 1] = split.sizes[parts[static_cast<size_t>(i)]];
    }
    ranks.all_gather(all, own)->wait();
    for (int64_t i = 0; i < count; ++i) {
      const size_t part = parts[static_cast<size_t>(i)];
      const std::string fault =
          tiles_error(split.placed[part], all.const_data_ptr<int64_t>() + 2 * i, ranks.size(), 2 * count);
      if (!fault.empty()) blame_split(split.by[part], fault);
    }
  }
}

}  // namespace heddle::parallel
