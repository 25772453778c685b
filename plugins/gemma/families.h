// Model families of this plugin that have their own files.
#pragma once

#include "heddle/plugin/offer.h"

namespace heddle::gemma {

void offer_gemma3(Offer& plugin);
void offer_gemma4(Offer& plugin);

}  // namespace heddle::gemma
