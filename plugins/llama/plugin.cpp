// Entry point: causal decoders with rotary embeddings, and their tensor-parallel plan.
#include "config/model_type.h"
#include "describe.h"
#include "family.h"
#include "heddle/decoder/family.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("llama", "0.1.0", "model llama qwen2 qwen3", "model mixtral olmoe qwen2_moe qwen3_moe",
              "model deepseek_v2 deepseek_v3 kimi_k2 glm4_moe_lite deepseek_v32 glm_moe_dsa", "model gpt_oss",
              "model glm4_moe minimax_m2 bailing_moe", "plan llama") {
  using namespace heddle::llama;
  plugin.model<Llama>("llama", table_of(dense_models()));
  plugin.model<Llama>("mixtral", table_of(mixture_models()));
  plugin.model<Llama>("deepseek_v2", table_of(latent_models()));
  plugin.model<Llama>("gpt_oss", table_of(gpt_oss_models()));
  plugin.model<Llama>("glm4_moe", table_of(sigmoid_models()));
  plugin.plan("llama", heddle::decoder::tensor_plan(describe({})));
}
