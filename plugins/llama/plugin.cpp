// Entry point: causal decoders with rotary embeddings, and Llama's tensor-parallel plan.
#include "families.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("llama", "0.1.0", "model llama", "model qwen2", "model qwen3", "model mixtral", "model olmoe",
              "model qwen2_moe", "model qwen3_moe", "model deepseek_v2", "model deepseek_v3", "model kimi_k2",
              "model glm4_moe_lite", "model deepseek_v32", "model glm_moe_dsa", "model gpt_oss",
              "model glm4_moe", "model bailing_moe", "model minimax_m2", "plan llama") {
  for (const auto offer : heddle::llama::kOffers) offer(plugin);
}
