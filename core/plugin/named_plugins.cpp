// One walk over the modules before apply(), one after it.
#include "core/plugin/named_plugins.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace heddle::plugin {
namespace {

void each_seam(const Units& units, const std::function<void(Seam&, const std::string&)>& visitor) {
  for (const auto& unit : units)
    if (Module* root = unit->module(); root != nullptr)
      root->visit(std::string(unit->name()), [&](const std::string& path, Module& module) {
        visitor(module.input, "in its seam before '" + path + "'");
        visitor(module.output, "in its seam after '" + path + "'");
      });
}

}  // namespace

NamedSeams::NamedSeams(const Units& units) {
  each_seam(units, [this](Seam& seam, const std::string&) { before_[&seam] = seam.size(); });
}

void NamedSeams::name(const Units& units, const Author& author) const {
  each_seam(units, [&](Seam& seam, const std::string& place) {
    const auto before = before_.find(&seam);
    const std::string doing = "ran " + place;
    seam.wrap(before == before_.end() ? 0 : before->second, [&](Seam::Transform transform) {
      return [author, doing, transform = std::move(transform)](at::Tensor x, const Batch& batch) {
        return attributed(
            author, doing, [&] { return transform(std::move(x), batch); },
            Keep::errors_and_what_is_no_exception);
      };
    });
  });
}

namespace {

class NamedModelSpec : public NamedObject<ModelSpec> {
 public:
  using NamedObject::NamedObject;
  ModelFacts facts() const override {
    return named("told the facts of its model", [&] { return inner_->facts(); });
  }
  Units make_units(const at::TensorOptions& options) const override {
    Units units = named("made the units", [&] { return inner_->make_units(options); });
    if (units.empty()) throw_named(author_, "made the units", "it gave none");
    for (const auto& unit : units)
      if (!unit) throw_named(author_, "made the units", "it gave a null pointer");
    return units;
  }
  std::map<std::string, std::string> signature() const override {
    return named("told its model's signature", [&] { return inner_->signature(); });
  }
  std::string config_json(const std::string& dtype) const override {
    return named("wrote config.json", [&] { return inner_->config_json(dtype); });
  }
  double flops_per_token(int64_t sequence) const override {
    return named("counted operations", [&] { return inner_->flops_per_token(sequence); });
  }
  StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const override {
    StoredParts parts =
        named("placed '" + parameter + "' in files", [&] { return inner_->stored(parameter, shape); });
    if (parts.empty()) return parts;
    if (const std::string fault = stored::fault(parts, shape); !fault.empty())
      throw_named(author_, "placed '" + parameter + "' in files", fault);
    return parts;
  }
  std::vector<std::string> other_names(const std::string& tensor) const override {
    return named("named '" + tensor + "'", [&] { return inner_->other_names(tensor); });
  }
  bool passes_over(const std::string& tensor) const override {
    return named("looked at '" + tensor + "'", [&] { return inner_->passes_over(tensor); });
  }
  std::map<std::string, std::string> idle_keys() const override {
    return named("listed keys that do nothing", [&] { return inner_->idle_keys(); });
  }
};

}  // namespace

std::unique_ptr<ModelSpec> NamedModelFamily::read(const Node& keys, UnknownKeys unknown) const {
  const std::string doing = "read a model's configuration";
  auto spec = named(doing, [&] { return inner_->read(keys, unknown); });
  if (!spec) throw_named(author_, doing, "it gave a null pointer");
  return std::make_unique<NamedModelSpec>(author_, std::move(spec));
}

std::vector<Node::Entry> NamedModelFamily::automodel_keys(const std::string& model_type) const {
  return named("listed the keys of a recipe", [&] { return inner_->automodel_keys(model_type); });
}

namespace {

// Returns the fault of a state; empty: none.
std::string optimizer_state_error(const OptimizerState& state) {
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
    if (const std::string fault = optimizer_state_error(state); !fault.empty())
      throw_named(author_, "told its optimizer's state", fault);
  return out;
}

void NamedOptimizer::update(const OptimizerUpdate& update) {
  named("ran update()", [&] { inner_->update(update); });
}

namespace {

struct Parameter {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool trains = false;
};
using Parameters = std::map<std::string, Parameter>;

Parameters parameters_of(const Units& units) {
  Parameters out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      out[slot.name] = {slot.tensor->sizes().vec(), slot.tensor->scalar_type(), slot.trainable()};
  return out;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A frozen parameter that is computed from itself may be held in another form.
bool is_packed(const std::string& name, const Parameter& is, const Transformed& said) {
  const auto derived = said.derived.find(name);
  return derived != said.derived.end() && derived->second.from == name && !is.trains;
}

// Why the units are not as the transform says, and what to do; empty: they are.
std::pair<std::string, std::string> parameters_error(const Parameters& before, const Parameters& after,
                                                     const Transformed& said) {
  for (const auto& [name, was] : before) {
    const auto found = after.find(name);
    if (found == after.end()) return {"it removed the parameter '" + name + "'", "keep it, and freeze it"};
    const Parameter& is = found->second;
    if ((is.shape != was.shape || is.dtype != was.dtype) && !is_packed(name, is, said))
      return {"it changed the shape or the dtype of '" + name + "'", "add a parameter of another name"};
    if (!was.trains && is.trains)
      return {"'" + name + "' did not train before, and trains now", "leave frozen parameters frozen"};
    if (was.trains && !is.trains && !has(said.frozen, name))
      return {"it froze '" + name + "' and does not say so", "list it in Transformed::frozen"};
    if (has(said.frozen, name) && (is.trains || !was.trains))
      return {
          "it says that it froze '" + name + "', which " + (is.trains ? "trains" : "did not train before"),
          "list in Transformed::frozen what it froze"};
  }
  for (const auto& [name, is] : after)
    if (before.count(name) == 0 && !has(said.added, name))
      return {"it added the parameter '" + name + "' and does not say so", "list it in Transformed::added"};
  for (const std::string& name : said.added)
    if (before.count(name) != 0 || after.count(name) == 0)
      return {"it says that it added '" + name + "', which " +
                  (after.count(name) == 0 ? "is not there" : "was there before"),
              "list in Transformed::added what it added"};
  for (const auto& [name, derived] : said.derived)
    if (after.count(name) == 0 || before.count(derived.from) == 0 || !derived.fill)
      return {"it derives '" + name + "' from '" + derived.from + "', and one of them is not there",
              "list in Transformed::derived parameters that are there, each with its function"};
  for (const std::string& name : said.frozen)
    if (before.count(name) == 0)
      return {"it says that it froze '" + name + "', which was not there before",
              "list in Transformed::frozen what it froze"};
  return {};
}

}  // namespace

Transformed NamedTransform::apply(Units& units, const TransformRun& run) const {
  const Parameters before = parameters_of(units);
  const NamedSeams seams(units);
  Transformed said = named("changed the model", [&] { return inner_->apply(units, run); });
  seams.name(units, author_);
  const auto [fault, hint] = parameters_error(before, parameters_of(units), said);
  if (!fault.empty())
    throw Error(ErrorCode::plugin_failed, author_.file.string(),
                "the plugin '" + author_.name + "' " + author_.version +
                    " breaks a rule of ITransform::apply(): " + fault,
                hint);
  return said;
}

}  // namespace heddle::plugin
