// Model families of this plugin, each in its own file.
#pragma once

#include "heddle/plugin/offer.h"

namespace heddle::mixtures {

void offer_ernie4_5_moe(Offer& plugin);
void offer_hy_v3(Offer& plugin);
void offer_laguna(Offer& plugin);
void offer_mimo_v2_flash(Offer& plugin);
void offer_step3p5(Offer& plugin);

}  // namespace heddle::mixtures
