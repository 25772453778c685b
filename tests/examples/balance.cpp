// A tp parallelizer that splits no parameter, but adds an auxiliary loss, metrics and a batch transform. The
// conformance kits train it along tp.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "heddle/model/module.h"
#include "heddle/model/side_outputs.h"
#include "heddle/nn/linear.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/sdk.h"

namespace balance {

struct Config {};

// Every rank of tp computes the whole model, so all values are equal over tp. The axes {"dp_cp"} count each
// value once.
class Balance : public heddle::IParallelizer {
 public:
  explicit Balance(Config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"tp"};
    return needs;
  }

  // Activation regularization of the feed-forward layers (Merity et al. 2017), as a mean over the tokens with
  // a label.
  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh& /*mesh*/) override {
    for (const auto& unit : units) {
      if (unit->module() == nullptr) continue;
      unit->module()->visit("", [this](const std::string& path, heddle::Module& module) {
        if (!path.ends_with("down_proj")) return;
        module.output.add([this](at::Tensor y, const heddle::Batch& batch) { return regularised(y, batch); });
      });
    }
    return {};
  }
  std::vector<heddle::SideOutput*> side_outputs() override { return {&activation_, &largest_, &ignored_}; }

  // Ignores labels that equal their token. The loss is still divided by the number of all labels.
  std::optional<int> transform_order() const override { return 0; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh& /*mesh*/) override {
    if (!batch.labels.defined()) return;
    const at::Tensor repeated = batch.labels.eq(batch.tokens);
    ignored_.add(repeated.sum(), batch);
    batch.labels = batch.labels.masked_fill(repeated, heddle::Batch::kIgnore);
  }

 private:
  at::Tensor regularised(const at::Tensor& y, const heddle::Batch& batch) const {
    largest_.add(y.detach().abs().max(), batch);
    return activation_.add(y, 0.1 * y.square().mean(-1).sum(), batch);
  }

  heddle::AuxiliaryLoss activation_{"balance/activation"};
  heddle::Metric largest_{"balance/largest", heddle::Combine::max},
      ignored_{"balance/ignored", heddle::Combine::sum, {"dp_cp"}, 1, heddle::Shown::file};
};

}  // namespace balance

HEDDLE_PLUGIN("balance", "0.1.0", "parallelizer balance") {
  plugin.parallelizer<balance::Balance>("balance", heddle::ConfigSchema<balance::Config>());
}
