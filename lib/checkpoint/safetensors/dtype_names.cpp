// The dtypes of safetensors files and their names in a header.
#include "lib/checkpoint/safetensors/dtype_names.h"

#include <array>
#include <utility>

namespace heddle::checkpoint {
namespace {

using enum c10::ScalarType;
constexpr std::array<std::pair<std::string_view, c10::ScalarType>, 16> kNames{{{"BOOL", Bool},
                                                                               {"U8", Byte},
                                                                               {"I8", Char},
                                                                               {"I16", Short},
                                                                               {"U16", UInt16},
                                                                               {"I32", Int},
                                                                               {"U32", UInt32},
                                                                               {"I64", Long},
                                                                               {"U64", UInt64},
                                                                               {"F16", Half},
                                                                               {"BF16", BFloat16},
                                                                               {"F32", Float},
                                                                               {"F64", Double},
                                                                               {"F8_E4M3", Float8_e4m3fn},
                                                                               {"F8_E5M2", Float8_e5m2},
                                                                               {"F8_E8M0", Float8_e8m0fnu}}};

}  // namespace

std::optional<c10::ScalarType> dtype_named(std::string_view name) {
  for (const auto& [text, dtype] : kNames)
    if (text == name) return dtype;
  return std::nullopt;
}

std::string name_of_dtype(c10::ScalarType dtype) {
  for (const auto& [text, known] : kNames)
    if (known == dtype) return std::string(text);
  return "";
}

}  // namespace heddle::checkpoint
