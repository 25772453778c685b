// Gemma 3 as a family of this plugin.
#pragma once

#include "heddle/plugin/offer.h"

namespace heddle::gemma {

void offer_gemma3(Offer& plugin);

}  // namespace heddle::gemma
