// The entry point: models of Llama's shape, and their plan for tensor parallelism.
#include "family.h"
#include "heddle/sdk.h"
#include "keys.h"
#include "make_units.h"

HEDDLE_PLUGIN("llama", "0.1.0", "model llama qwen2 qwen3", "model mixtral olmoe qwen2_moe qwen3_moe",
              "plan llama") {
  plugin.model<heddle::llama::Llama>("llama", heddle::llama::keys());
  plugin.model<heddle::llama::Llama>("mixtral", heddle::llama::mixture_keys());
  plugin.plan("llama", heddle::llama::tensor_plan());
}
