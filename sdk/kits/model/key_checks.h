// Checks of a family's keys: each key affects the model, and config_json() keeps it.
#pragma once

#include <string>
#include <vector>

#include "families.h"
#include "heddle/base/error.h"
#include "heddle/plugin/offer.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {

// The findings of a kit about several keys, reported in one failure.
class Findings {
 public:
  // Runs `check` and keeps its finding, an Error{plugin_failed}. Errors of another code are not caught.
  template <class Check>
  void attempt(const Check& check) {
    try {
      check();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::plugin_failed) throw;
      text_ += (text_.empty() ? "" : "\n      ") + error.message();
    }
  }
  // Throws Error{plugin_failed} with one line per finding, or returns if there is none.
  void raise() const {
    if (!text_.empty()) found(text_);
  }

 private:
  std::string text_;
};

// Checks that an unknown key is an error for UnknownKeys::refused only.
std::string refuses_unknown_keys(const OfferedModel& offered, const Node& keys);
// Checks that config_json() has a model_type that the file offers, and that read() returns the same model in
// the requested dtype.
std::string reads_what_it_writes(const Families& families, const OfferedModel& offered, const Node& keys);
// Checks that a value of a key (of any family of the file) that changes names or sizes of parameters also
// changes signature().
std::string changes_its_signature(const Families& families, const OfferedModel& offered, const Node& keys);
// Checks that every key of the table with another value affects facts, parameters or results of a model of
// some type, that config_json() keeps the change, and that read() uses the default of the table. keys: of
// each type. A key without effect is accepted if its help says so. Throws NotRun if no key affects the model.
std::string acts_on_each_key(const Families& families, const OfferedModel& offered,
                             const std::vector<Node>& keys);
// Checks that two models with the same keys are equal in names, sizes and values drawn from the generator.
std::string makes_the_same_twice(const OfferedModel& offered, const Node& keys);

}  // namespace heddle::kits
