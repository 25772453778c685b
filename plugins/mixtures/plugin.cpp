// Mixtures of experts whose routers have a correction bias.
#include "families.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("mixtures", "0.1.0", "model ernie4_5_moe", "model hy_v3", "model laguna", "model mimo_v2_flash",
              "model step3p5") {
  using namespace heddle::mixtures;
  offer_ernie4_5_moe(plugin);
  offer_hy_v3(plugin);
  offer_laguna(plugin);
  offer_mimo_v2_flash(plugin);
  offer_step3p5(plugin);
}
