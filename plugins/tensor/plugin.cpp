// Entry point of the plugin tensor.
#include "heddle/sdk.h"
#include "parallelizer.h"

HEDDLE_PLUGIN("tensor", "0.1.0", "parallelizer tensor") {
  auto& offered = plugin.parallelizer<heddle::tensor::Tensor>("tensor", heddle::tensor::schema());
  offered.plan_key = "tp_plan";
  offered.axis_fields = {"tp_plan", "sequence_parallel", "enable_async_tensor_parallel"};
}
