// The fields of the caller (KitOptions::fields), distributed to the offers of a file.
#pragma once

#include <string_view>

#include "heddle/config/node.h"
#include "kind_kits.h"

namespace heddle::kits {

// Returns the map of KitOptions::fields. Throws Error{config} at kFieldsOption if it is not a map.
Node given_fields(const KitOptions& options);

// Returns the caller's fields without keys that only other offers of the file have. A key that no offer has
// is kept, so that the offer refuses it by name.
Node fields_of(const OfferedSchema& offered, const CheckedPlugin& plugin);

// Throws Error{config} with the nearest key at a key of KitOptions::fields that no offer of the file has.
void check_given_fields(const CheckedPlugin& plugin);

}  // namespace heddle::kits
