// Model families of this plugin, each in its own file.
#pragma once

#include "heddle/plugin/offer.h"

namespace heddle::dense {

void offer_apertus(Offer& plugin);
void offer_baichuan(Offer& plugin);
void offer_cohere2(Offer& plugin);
void offer_ernie4_5(Offer& plugin);
void offer_glm(Offer& plugin);
void offer_gpt2(Offer& plugin);
void offer_granite(Offer& plugin);
void offer_nanochat(Offer& plugin);
void offer_olmo(Offer& plugin);
void offer_olmo2(Offer& plugin);
void offer_phi(Offer& plugin);
void offer_seed_oss(Offer& plugin);
void offer_starcoder2(Offer& plugin);

}  // namespace heddle::dense
