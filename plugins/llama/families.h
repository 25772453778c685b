// Model families of this plugin, in files named after them.
#pragma once

#include <array>

#include "heddle/plugin/offer.h"

namespace heddle::llama {

void offer_llama(Offer& plugin);  // also the tensor-parallel plan
void offer_qwen(Offer& plugin);   // qwen2, qwen3
void offer_mixtral(Offer& plugin);
void offer_olmoe(Offer& plugin);
void offer_qwen_moe(Offer& plugin);  // qwen2_moe, qwen3_moe
void offer_deepseek(Offer& plugin);  // deepseek_v2, deepseek_v3, kimi_k2
void offer_glm4_moe_lite(Offer& plugin);
void offer_sparse_latent(Offer& plugin);  // deepseek_v32, glm_moe_dsa
void offer_gpt_oss(Offer& plugin);
void offer_sigmoid(Offer& plugin);  // glm4_moe, bailing_moe
void offer_minimax_m2(Offer& plugin);

inline constexpr std::array kOffers = {
    offer_llama,         offer_qwen,          offer_mixtral, offer_olmoe,   offer_qwen_moe,  offer_deepseek,
    offer_glm4_moe_lite, offer_sparse_latent, offer_gpt_oss, offer_sigmoid, offer_minimax_m2};

}  // namespace heddle::llama
