// A model of the fuzzers: keys without units, so that they link no layer.
#include "heddle/decoder/family.h"
#include "heddle/plugin/offer.h"

namespace heddle {

OfferedSchema::~OfferedSchema() = default;  // without the registry of plugins

namespace decoder {
namespace {

class KeysOnly : public ModelSpec {
 public:
  explicit KeysOnly(ReadModel read) : read_(std::move(read)) {}
  ModelFacts facts() const override { return read_.facts; }
  Units make_units(const at::TensorOptions&) const override { return {}; }
  std::map<std::string, std::string> signature() const override { return read_.signature; }
  std::string config_json(const std::string& dtype) const override { return read_.config_json(dtype); }
  double flops_per_token(int64_t) const override { return 0; }

 private:
  ReadModel read_;
};

}  // namespace

std::unique_ptr<ModelSpec> make_spec(ReadModel read) {
  return std::make_unique<KeysOnly>(std::move(read));
}

TensorPlan tensor_plan(const Model&) {
  return {};
}

}  // namespace decoder
}  // namespace heddle
