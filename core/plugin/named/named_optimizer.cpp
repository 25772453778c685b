// Calls of an optimizer, attributed, and the rules of its state.
#include "core/plugin/named/named_optimizer.h"

#include <set>
#include <utility>

namespace heddle::plugin {
namespace {

// What is wrong with the states; empty: nothing.
std::string fault_of(const OptimizerState& state) {
  if (state.shard == nullptr) return "a state has no shard";
  const std::string of = " of '" + state.shard->name + "'";
  std::set<std::string> names;
  for (const StateTensor& one : state.tensors) {
    const std::string it = "the state '" + one.name + "'" + of;
    if (one.name.empty() || one.name.find('.') != std::string::npos)
      return it + " has an empty name or a dot";
    if (one.name == "master") return it + " has the name of the engine's master copies";
    if (!names.insert(one.name).second) return it + " is given twice";
    if (!one.tensor.defined()) return it + " has no tensor";
    const auto dims = static_cast<size_t>(one.tensor.dim());
    if (one.shape.size() != dims || one.offset.size() != dims)
      return it + " has " + std::to_string(dims) + " dims, and its box has others";
    for (size_t dim = 0; dim < dims; ++dim)
      if (one.offset[dim] < 0 ||
          one.offset[dim] + one.tensor.size(static_cast<int64_t>(dim)) > one.shape[dim])
        return it + " is outside of its whole";
  }
  return "";
}

}  // namespace

NamedOptimizer::NamedOptimizer(Author author, std::string name, std::unique_ptr<IOptimizer> inner)
    : NamedObject(std::move(author), std::move(inner)), name_(std::move(name)) {}

void NamedOptimizer::start(std::span<const TrainedShard> shards, const DeviceMesh& mesh) {
  named("started its optimizer", [&] { inner_->start(shards, mesh); });
}

std::vector<OptimizerState> NamedOptimizer::state() {
  std::vector<OptimizerState> out = named("told its optimizer's state", [&] { return inner_->state(); });
  for (const OptimizerState& state : out)
    if (const std::string fault = fault_of(state); !fault.empty())
      throw_named(author_, "told its optimizer's state", fault);
  return out;
}

void NamedOptimizer::update(const OptimizerUpdate& update) {
  named("ran update()", [&] { inner_->update(update); });
}

}  // namespace heddle::plugin
