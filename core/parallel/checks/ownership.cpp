// Boxes tile a parameter exactly when their generating functions (the sum of x^i y^j over the elements i, j)
// add up to that of the whole. Comparing them at random points of a prime field (Schwartz 1980) costs a few
// numbers for each parameter, which the ranks can add up.
#include "core/parallel/checks/ownership.h"

#include <ATen/ops/zeros.h>

#include <array>
#include <iomanip>
#include <map>
#include <sstream>

#include "core/mesh/layout.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::parallel {
namespace {

// Sums of a prime below 2^31 over 2^21 ranks are exact in fp64. A wrong tiling passes one point with a
// probability of its sizes' sum to the prime, some 1e-4.
constexpr uint64_t kPrime = 2147483647;
constexpr size_t kPoints = 3, kNumbers = kPoints + 1;  // the last: elements

// Splitmix64 (Steele et al. 2014), in [1, kPrime).
uint64_t scattered(uint64_t seed) {
  uint64_t z = seed * 0x9E3779B97F4A7C15ull + 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (z ^ (z >> 31)) % (kPrime - 1) + 1;
}

uint64_t power(uint64_t x, uint64_t exponent) {
  uint64_t out = 1;
  for (; exponent > 0; exponent >>= 1, x = x * x % kPrime)
    if ((exponent & 1) != 0) out = out * x % kPrime;
  return out;
}

// Generating function of the box [offset, offset + size), times (x - 1) for each dim.
uint64_t digest(at::IntArrayRef offset, at::IntArrayRef size, size_t point) {
  uint64_t out = 1;
  for (size_t dim = 0; dim < size.size(); ++dim) {
    const uint64_t x = scattered(point * 1024 + dim);
    const uint64_t begin = power(x, static_cast<uint64_t>(offset[dim]));
    const uint64_t end = power(x, static_cast<uint64_t>(offset[dim] + size[dim]));
    out = out * (end + kPrime - begin) % kPrime;
  }
  return out;
}

// Each rank has a weight, so that a surplus in one copy does not cancel what another copy lacks.
uint64_t weight_of(int rank, size_t point) {
  return scattered((point + kPoints) * (uint64_t{1} << 40) + static_cast<uint64_t>(rank));
}

double elements_of(at::IntArrayRef sizes) {
  double out = 1;
  for (const int64_t size : sizes) out *= static_cast<double>(size);
  return out;
}

std::string in_words(at::IntArrayRef sizes) {
  std::ostringstream out;
  out << sizes;
  return out.str();
}

}  // namespace

// This rank's term for each parameter, and the sum that all ranks must reach.
class Ownership::Sums {
 public:
  explicit Sums(const DeviceMesh& mesh) : mesh_(mesh) {}

  using Numbers = std::array<double, kNumbers>;
  void add(const Shard& shard, double* sums) {
    const Copy& copy = copy_along(shard.axes);
    for (size_t point = 0; point < kPoints; ++point) {
      const uint64_t more = copy.weights[point] * digest(shard.offset, shard.tensor.sizes(), point) % kPrime;
      sums[point] = static_cast<double>((static_cast<uint64_t>(sums[point]) + more) % kPrime);
    }
    sums[kPoints] += copy.ranks * static_cast<double>(shard.tensor.numel());
  }

  Numbers whole(const Parameter& parameter) {
    const Copy& stage = ranks_of_stage(parameter.place);
    const std::vector<int64_t> start(parameter.shape.size(), 0);
    Numbers out;
    for (size_t point = 0; point < kPoints; ++point)
      out[point] = static_cast<double>(stage.weights[point] * digest(start, parameter.shape, point) % kPrime);
    out[kPoints] = stage.ranks * elements_of(parameter.shape);
    return out;
  }
  double copies(const Parameter& parameter) { return ranks_of_stage(parameter.place).ranks; }

 private:
  struct Copy {
    double ranks = 0;
    std::array<uint64_t, kPoints> weights = {};
    void add(int rank) {
      ++ranks;
      for (size_t point = 0; point < kPoints; ++point)
        weights[point] = (weights[point] + weight_of(rank, point)) % kPrime;
    }
  };

  const Copy& copy_along(const std::vector<std::string>& axes) {
    const auto [found, fresh] = copies_.try_emplace(axes);
    if (!fresh) return found->second;
    for (const int rank : mesh_.ranks(text::join(axes, "+"))) found->second.add(rank);
    return found->second;
  }

  const Copy& ranks_of_stage(int place) {
    const auto [found, fresh] = stages_.try_emplace(place);
    if (!fresh) return found->second;
    const mesh::Layout layout{{mesh_.axes().begin(), mesh_.axes().end()}};
    const int own = layout.index_of(kPipelineAxis);
    const std::vector<int> pipeline(own < 0 ? 0 : 1, own);
    for (int rank = 0; rank < layout.world(); ++rank)
      if (layout.place(pipeline, rank) == place) found->second.add(rank);
    return found->second;
  }

  const DeviceMesh& mesh_;
  std::map<std::vector<std::string>, Copy> copies_;
  std::map<int, Copy> stages_;
};

Ownership::Ownership(const Units& units, const StageMap& map) {
  for (size_t i = 0; i < units.size(); ++i)
    for (const ParameterSlot& slot : units[i]->parameters())
      if (index_.emplace(std::pair(slot.name, map.stage_of_unit[i]), parameters_.size()).second)
        parameters_.push_back({slot.name, slot.tensor->sizes().vec(), slot.trainable(),
                               map.rank_of_stage[map.stage_of_unit[i]]});
}

// Returns the fault of a single shard; empty: none.
std::string Ownership::shard_error(const Shard& shard, int stage, const DeviceMesh& mesh) const {
  const std::string owns = "it owns a shard of '" + shard.name + "'";
  const auto found = index_.find({shard.name, stage});
  if (found == index_.end()) return owns + ", and the model has no such parameter";
  const Parameter& parameter = parameters_[found->second];
  if (!shard.tensor.defined()) return owns + " without a tensor";
  if (shard.shape != parameter.shape)
    return owns + " of shape " + in_words(shard.shape) + ", and the parameter has " +
           in_words(parameter.shape);
  const at::IntArrayRef size = shard.tensor.sizes();
  bool fits = size.size() == shard.shape.size() && shard.offset.size() == shard.shape.size();
  for (size_t dim = 0; fits && dim < size.size(); ++dim)
    fits = shard.offset[dim] >= 0 && shard.offset[dim] + size[dim] <= shard.shape[dim];
  if (!fits)
    return owns + " with a tensor of " + in_words(size) + " at the offset " + in_words(shard.offset) +
           ", which is not a box in its shape " + in_words(shard.shape);
  if (parameter.trainable && shard.tensor.numel() > 0 && !shard.tensor.requires_grad())
    return owns + " that requires no gradient, so the optimizer would leave it as it is";
  std::vector<std::string> axes = shard.axes;
  axes.insert(axes.end(), shard.partial.begin(), shard.partial.end());
  if (const std::string fault = mesh.axes_error(axes); !fault.empty())
    return owns + ", and of its axes: " + fault;
  return "";
}

std::string Ownership::local_fault(const Stages& stages, const DeviceMesh& mesh) const {
  size_t local = 0;
  for (const auto& stage : stages) {
    const int index = stages.indices()[local++];
    for (const Shard& shard : stage->owned())
      if (std::string fault = shard_error(shard, index, mesh); !fault.empty()) return fault;
  }
  return "";
}

// The first parameter that the shards of all ranks do not cover exactly once; empty: none.
std::string Ownership::sums_error(const double* held, Sums& sums) const {
  for (const Parameter& parameter : parameters_) {
    const Sums::Numbers whole = sums.whole(parameter);
    bool equal = true;
    for (size_t i = 0; i < kPoints; ++i) equal = equal && static_cast<uint64_t>(held[i]) % kPrime == whole[i];
    const double copies = sums.copies(parameter), there = held[kPoints] / copies,
                 wanted = whole[kPoints] / copies;
    held += kNumbers;
    if (equal && there == wanted) continue;
    std::ostringstream out;
    out << std::setprecision(15) << "the shards of '" << parameter.name << "' hold " << there
        << " elements in a copy, and the parameter has " << wanted << ": "
        << (there > wanted   ? "some are owned more than once"
            : there < wanted ? "some are owned by no rank"
                             : "some are owned more than once, and some by no rank");
    return out.str();
  }
  return "";
}

namespace {

// A group keeps the name by which it was first asked for.
std::string name_of_world(const DeviceMesh& mesh) {
  for (const Axis& axis : mesh.axes())
    if (axis.size == mesh.size(kWorldAxis)) return axis.name;
  return std::string(kWorldAxis);
}

// Returns the first fault with the rank that found it; empty: none.
std::vector<std::string> first_fault(std::span<const std::string> faults) {
  for (size_t rank = 0; rank < faults.size(); ++rank)
    if (!faults[rank].empty()) return {"on rank " + std::to_string(rank) + " " + faults[rank]};
  return {""};
}

[[noreturn]] void refuse(const Plan& plan, const std::string& fault, const std::string& hint) {
  throw Error(ErrorCode::plugin_failed, plan.strategy_file.empty() ? "parallel" : plan.strategy_file,
              "the strategy '" + plan.strategy_name + "' breaks a rule of ParallelStage::owned(): " + fault,
              hint);
}

}  // namespace

void Ownership::check(const Stages& stages, const Plan& plan, const Split& split,
                      const DeviceMesh& mesh) const {
  // A fault found by one rank is sent to all, so that no rank waits for it.
  const std::string fault = mesh.rendezvous().meet("owned shards", local_fault(stages, mesh), first_fault);
  if (!fault.empty())
    refuse(plan, fault,
           "a shard is a box of the whole parameter: begin with whole_shard(slot, placed), and call "
           "shard.tensor.set_requires_grad(true) where the slot is trainable()");
  Sums sums(mesh);
  const size_t count = kNumbers * parameters_.size();
  const at::Tensor all = at::zeros({static_cast<int64_t>(count) + 1}, at::kDouble);
  double* numbers = all.mutable_data_ptr<double>();
  size_t local = 0;
  for (const auto& stage : stages) {
    const int index = stages.indices()[local++];
    for (const Shard& shard : stage->owned())
      sums.add(shard, numbers + kNumbers * index_.at({shard.name, index}));
  }
  numbers[count] = 1;
  const int ranks = mesh.size(kWorldAxis);
  if (ranks > 1) mesh.group(name_of_world(mesh)).all_reduce(all)->wait();
  if (numbers[count] != ranks) return;  // a dry mesh: nothing was added up
  if (const std::string fault = sums_error(numbers, sums); !fault.empty()) {
    check_tiles(split, mesh);
    refuse(plan, fault,
           "each copy holds every element once: own a tied parameter (one name in several slots) once, and "
           "name in Shard::axes the mesh axes that split it, and no others");
  }
}

}  // namespace heddle::parallel
