// The findings of a kit that checks many things: all of them in one failure.
#pragma once

#include <string>

#include "heddle/base/error.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {

class Findings {
 public:
  // Keeps what `check` finds. Errors of another kind pass.
  template <class Check>
  void attempt(const Check& check) {
    try {
      check();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::plugin_failed) throw;
      text_ += (text_.empty() ? "" : "\n      ") + error.message();
    }
  }
  // Throws Error{plugin_failed} with a line for each.
  void raise() const {
    if (!text_.empty()) found(text_);
  }

 private:
  std::string text_;
};

}  // namespace heddle::kits
