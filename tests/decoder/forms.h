// Decoder forms that tests compare with plain operators.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "heddle/decoder/description.h"

namespace heddle::tests {

constexpr int64_t kTokens = 13, kWidth = 12, kLength = 9;  // vocabulary size, hidden size, row length

// Two layers with grouped-query attention and a gated MLP.
decoder::Model base_model();

struct Form {
  std::string name;
  void (*change)(decoder::Model& model);  // changes the base model
};
inline std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

const std::vector<Form>& decoder_forms();

}  // namespace heddle::tests
