// Llama.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "keys.h"

namespace heddle::llama {
namespace {

struct LlamaKeys : Keys {
  bool mlp_bias = false;
};

void check_llama(const Node& given, LlamaKeys& keys) {
  check_heads_divide(given, keys, "llama");
  if (keys.initializer_range > 1)
    model::refuse(*given.find("initializer_range"),
                  "transformers requires an initializer_range from 0 to 1, got " +
                      given.find("initializer_range")->written());
}

model::ModelKeys<LlamaKeys> llama_keys() {
  auto keys = add_common<LlamaKeys>("llama");
  add_attention_bias(keys);
  keys.field("mlp_bias", &LlamaKeys::mlp_bias, "Whether the MLP has biases.");
  // transformers' defaults of these two are tokens.
  const auto written = [](const LlamaKeys&) {
    return std::vector<Node::Entry>{{"bos_token_id", Node()}, {"eos_token_id", Node()}};
  };
  keys.group({{}, check_llama, written});
  return keys;
}

decoder::Model llama_model(const LlamaKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  decoder::Mlp mlp = keys.mlp();
  mlp.bias = keys.mlp_bias;
  return keys.model({attention, mlp, keys.norm()});
}

const decoder::Description<LlamaKeys>& llama() {
  static const decoder::Description<LlamaKeys> kLlama = {.model_type = "llama",
                                                         .architecture = "LlamaForCausalLM",
                                                         .keys = llama_keys(),
                                                         .model = llama_model,
                                                         .benchmark = decoder::llama_benchmark,
                                                         .signature = signature<llama>};
  return kLlama;
}

}  // namespace

void offer_llama(Offer& plugin) {
  plugin.model<decoder::Family<llama>>("llama", llama().keys);
  plugin.plan("llama", decoder::tensor_plan(llama_model({})));
}

}  // namespace heddle::llama
