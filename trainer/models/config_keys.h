// The keys of Hugging Face configurations: those that act, those that change no number, and those refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"

namespace heddle::models {

// Does the key act on the model's numbers, or is it known to be without effect on them?
bool acts(std::string_view key);
bool is_harmless(std::string_view key);
// The acting key that was meant, or empty.
std::string nearest_acting_key(std::string_view key);

[[noreturn]] void refuse(const Node& node, const std::string& message, const std::string& hint = "");

// Throws Error{config} for a key whose value would make transformers compute something else than heddle does.
void check_refused_keys(const Node& keys);

// The value of a key, `otherwise` where it is absent or null.
int64_t integer_or(const Node& keys, std::string_view key, int64_t otherwise);
double real_or(const Node& keys, std::string_view key, double otherwise);
bool boolean_or(const Node& keys, std::string_view key, bool otherwise);
std::string text_or(const Node& keys, std::string_view key, const std::string& otherwise);

}  // namespace heddle::models
