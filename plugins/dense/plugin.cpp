// Dense decoders that differ from Llama by a few options of the model library.
#include "families.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("dense", "0.1.0", "model apertus", "model baichuan", "model cohere2", "model ernie4_5",
              "model glm", "model glm4", "model gpt2", "model granite", "model nanochat", "model olmo",
              "model olmo2", "model phi", "model seed_oss", "model starcoder2") {
  using namespace heddle::dense;
  offer_apertus(plugin);
  offer_baichuan(plugin);
  offer_cohere2(plugin);
  offer_ernie4_5(plugin);
  offer_glm(plugin);
  offer_gpt2(plugin);
  offer_granite(plugin);
  offer_nanochat(plugin);
  offer_olmo(plugin);
  offer_olmo2(plugin);
  offer_phi(plugin);
  offer_seed_oss(plugin);
  offer_starcoder2(plugin);
}
