// Helpers of transforms: extended tensor plans.
#include "heddle/plugin/transform.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <memory>

#include "heddle/model/module_unit.h"
#include "tests/thrown.h"
#include "tests/toy_unit.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class Identity : public Module {
 public:
  std::string_view kind() const override { return "identity"; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override { return x; }
};

Units units_with(std::vector<std::shared_ptr<const TensorPlan>> plans) {
  Units units;
  for (auto& plan : plans) {
    auto unit =
        std::make_unique<ModuleUnit>("unit" + std::to_string(units.size()), "", std::make_unique<Identity>());
    unit->set_tensor_plan(std::move(plan));
    units.push_back(std::move(unit));
  }
  return units;
}

TEST(ExtendTensorPlan, AddsStylesAfterThePlanOfEachUnit) {
  const auto shared = std::make_shared<const TensorPlan>(TensorPlan{{"*.q", "colwise"}});
  const auto other = std::make_shared<const TensorPlan>(TensorPlan{{"head", "rowwise"}});
  Units units = units_with({shared, shared, other, nullptr});
  transform::extend_tensor_plan(units, {{"*.adapter", "colwise"}});
  EXPECT_THAT(*units[0]->tensor_plan(), ElementsAre(Pair("*.q", "colwise"), Pair("*.adapter", "colwise")));
  EXPECT_EQ(units[0]->tensor_plan(), units[1]->tensor_plan()) << "units of one plan keep one plan";
  EXPECT_THAT(*units[2]->tensor_plan(), ElementsAre(Pair("head", "rowwise"), Pair("*.adapter", "colwise")));
  ASSERT_NE(units[3]->tensor_plan(), nullptr);
  EXPECT_THAT(*units[3]->tensor_plan(), ElementsAre(Pair("*.adapter", "colwise")));
  EXPECT_THAT(*shared, ElementsAre(Pair("*.q", "colwise"))) << "the plan of other models is unchanged";
}

TEST(ExtendTensorPlan, RefusesAForeignUnit) {
  Units units = units_with({nullptr});
  units.push_back(std::make_unique<tests::ToyUnit>("torch", std::vector<tests::ToyUnit::Parameter>{},
                                                   tests::ToyUnit::Body{}));
  EXPECT_EQ(
      tests::thrown_by([&] {
        transform::extend_tensor_plan(units, {{"*.adapter", "colwise"}});
      }),
      "error[config] transform: the unit 'torch' is a foreign model without modules, which cannot be split "
      "along tp\n  hint: extend the plans of heddle's own models only");
}

}  // namespace
}  // namespace heddle
