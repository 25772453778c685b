// fp8: linear layers with products in fp8.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/model/module_unit.h"
#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"
#include "products.h"
#include "te_fp8.h"

namespace heddle::fp8 {
namespace {

struct Config {
  bool enabled = false, fsdp_all_gather = false, precompute_scale = false, force_recompute = false,
       emulate = false;
  std::optional<std::string> recipe_name;
  std::vector<std::string> filter_fqns;
};

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("enabled", &Config::enabled, "Enable fp8. false: the section has no effect.")
      .field("recipe_name", &Config::recipe_name,
             "Granularity of the scales: one per tensor or one per row. null: tensorwise.",
             OneOf{{"tensorwise", "rowwise", "rowwise_with_gw_hp"}})
      .later("recipe_name", "only tensorwise scaling is built",
             [](const Config& given) { return given.recipe_name.value_or("tensorwise") == "tensorwise"; })
      .field("enable_fsdp_float8_all_gather", &Config::fsdp_all_gather,
             "Ignored: weights are gathered in the strategy's dtype. AutoModel gathers them in fp8.")
      .field("precompute_float8_dynamic_scale_for_fsdp", &Config::precompute_scale,
             "Ignored: results are the same. In AutoModel it sets when the scales of weights are computed.")
      .field("force_recompute_fp8_weight_in_bwd", &Config::force_recompute,
             "Ignored: the backward always rounds weights again.")
      .field("filter_fqns", &Config::filter_fqns,
             "Substrings of module paths. Layers whose path contains one of them are not converted.")
      .field("emulate", &Config::emulate,
             "Round operands to fp8 and multiply them in float32, on any device.");
}

class Fp8 : public ITransform {
 public:
  explicit Fp8(Config config) : config_(std::move(config)) {}

  Transformed apply(Units& units, const TransformRun& run) const override {
    if (!config_.enabled) return {};
    const auto link = Linear::Instead::in_place(
        "fp8", [how = How{config_.emulate}](std::span<Linear* const> layers, const at::Tensor& x,
                                            const Batch&) { return linears(layers, x, how); });
    int64_t layers = 0;
    model::each<Linear>(units, [&](const std::string& path, Linear& layer) {
      if (layer.traits().role != Role::projection || !takes(layer, path)) return;
      layer.instead.add(link);
      ++layers;
    });
    if (layers == 0)
      throw Error(ErrorCode::config, run.where,
                  "no linear layer qualifies for products in fp8: sizes must be multiples of 16, and "
                  "filter_fqns must not match",
                  "remove fp8, or set fp8.enabled: false");
    Transformed out;
    out.note = "products in fp8 in " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
    return out;
  }

 private:
  bool takes(const Linear& layer, const std::string& path) const {
    for (const std::string& part : config_.filter_fqns)
      if (path.find(part) != path.npos) return false;
    return layer.weight.size(0) % 16 == 0 && layer.weight.size(1) % 16 == 0;
  }

  Config config_;
};

}  // namespace
}  // namespace heddle::fp8

HEDDLE_PLUGIN("fp8", "0.2.0", "transform fp8", "transform te_fp8") {
  using namespace heddle::fp8;
  const char* const split = "fp8 for linear layers that tensor parallelism splits is not built yet";
  plugin.transform<Fp8>("fp8", schema()).refuses = {{"tp", split}};
  plugin.transform<TeFp8>("te_fp8", te_schema()).refuses = {{"tp", split}};
}
