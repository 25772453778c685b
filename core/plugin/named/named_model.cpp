// Every call of a family and of its models, attributed.
#include "core/plugin/named/named_model.h"

#include <utility>

namespace heddle::plugin {
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

}  // namespace heddle::plugin
