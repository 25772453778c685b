// The fields that the caller gives (KitOptions::fields), shared out among the offers of a file.
#pragma once

#include <string_view>

#include "heddle/config/node.h"
#include "kind_kits.h"

namespace heddle::kits {

// The map of KitOptions::fields. Throws Error{config} at kFieldsOption where it is none.
Node given_fields(const KitOptions& options);

// Without the keys that other offers of the file have, and this one has not. A key that no offer has stays,
// so that the offer refuses it by name.
Node fields_of(const OfferedSchema& offered, const CheckedPlugin& plugin);

// Throws Error{config} at the key of KitOptions::fields that no offer of the file has, with the nearest one.
void check_given_fields(const CheckedPlugin& plugin);

}  // namespace heddle::kits
