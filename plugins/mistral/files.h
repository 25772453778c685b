// Places of the tensors of these families in files.
#pragma once

#include "heddle/decoder/family.h"

namespace heddle::mistral {

// The text model inside a model with images has a prefix, in an older and a newer spelling.
inline decoder::Files files_of_text() {
  return decoder::Files()
      .otherwise("model.", "language_model.model.")
      .otherwise("model.", "model.language_model.")
      .otherwise("lm_head.", "language_model.lm_head.")
      .ignored_module("vision_tower")
      .ignored_module("multi_modal_projector");
}

}  // namespace heddle::mistral
