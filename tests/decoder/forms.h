// The forms of a decoder that are compared with plain operators.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "heddle/decoder/description.h"

namespace heddle::tests {

constexpr int64_t kTokens = 13, kWidth = 12, kLength = 9;  // sizes of vocabulary, hidden states and rows

// Two layers of grouped heads and a gated MLP.
decoder::Model base_model();

struct Form {
  std::string name;
  void (*change)(decoder::Model& model);  // of the base model
};
inline std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

const std::vector<Form>& decoder_forms();

}  // namespace heddle::tests
