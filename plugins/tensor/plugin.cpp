// The entry point of tensor parallelism.
#include "heddle/sdk.h"
#include "parallelizer.h"

HEDDLE_PLUGIN("tensor", "0.1.0", "parallelizer tensor") {
  plugin.parallelizer<heddle::tensor::Tensor>("tensor", heddle::tensor::schema()).plan_key = "tp_plan";
}
