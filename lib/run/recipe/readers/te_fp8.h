// Products in fp8 as NeMo AutoModel asks for them, inside model.backend.
#pragma once

#include <optional>

#include "heddle/config/node.h"

namespace heddle::recipe {

// model.backend.te_fp8 of a recipe as a section of its own; empty: it is not given. With the fields linear
// and experts: what backend has computed by Transformer Engine. Throws Error{config} where that is neither,
// and for an object in place of a recipe's name.
std::optional<Node> te_fp8_section(const Node& root);

}  // namespace heddle::recipe
