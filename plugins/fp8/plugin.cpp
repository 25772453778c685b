// fp8: the products of linear layers in eight bits.
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
      .field("enabled", &Config::enabled, "False: the section changes nothing.")
      .field("recipe_name", &Config::recipe_name,
             "Scales: one for each tensor, or for each row; null: tensorwise.",
             OneOf{{"tensorwise", "rowwise", "rowwise_with_gw_hp"}})
      .later("recipe_name", "only tensorwise scaling is built",
             [](const Config& given) { return given.recipe_name.value_or("tensorwise") == "tensorwise"; })
      .field("enable_fsdp_float8_all_gather", &Config::fsdp_all_gather,
             "Weights travel in fp8 in AutoModel; no effect: they are gathered in the strategy's dtype.")
      .field("precompute_float8_dynamic_scale_for_fsdp", &Config::precompute_scale,
             "When AutoModel finds the scales of weights; no effect: the numbers are the same.")
      .field("force_recompute_fp8_weight_in_bwd", &Config::force_recompute,
             "Weights are rounded again in the backward; no effect: they always are.")
      .field("filter_fqns", &Config::filter_fqns,
             "Parts of module paths: layers whose path holds one of them stay as they are.")
      .field("emulate", &Config::emulate,
             "Products of numbers that are rounded to fp8, in float32, on any device.");
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
                  "no linear layer is left for products in fp8: their sizes must be multiples of 16, and "
                  "filter_fqns names none of them",
                  "leave fp8 out, or set fp8.enabled: false");
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
  const char* const split = "products in fp8 of layers that are split among ranks are not built yet";
  plugin.transform<Fp8>("fp8", schema()).refuses = {{"tp", split}};
  plugin.transform<TeFp8>("te_fp8", te_schema()).refuses = {{"tp", split}};
}
