// Errors that are found without each other, thrown together.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/error.h"

namespace heddle {

// At least two errors. As an Error it is the first of them; what() has the blocks of all.
class HEDDLE_API ErrorList : public Error {
 public:
  explicit ErrorList(std::vector<Error> all);
  ~ErrorList() override;

  const std::vector<Error>& all() const { return all_; }
  const char* what() const noexcept override { return blocks_.c_str(); }

 private:
  std::vector<Error> all_;
  std::string blocks_;
};

// {"error": {...}}, the first; of an ErrorList all of them too: {"error": {...}, "errors": [{...}, ...]}.
HEDDLE_API std::string to_json(const Error& error);

// Collects the errors of checks that do not need each other.
class HEDDLE_API Errors {
 public:
  // Whether the work ended without an Error; one that is thrown is kept. Other exceptions pass.
  template <class Work>
  bool attempt(const Work& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      add(error);
      return false;
    }
  }

  void add(const Error& error);  // of an ErrorList each; one that is there already is left out
  bool empty() const { return all_.empty(); }

  // Throws what was kept, if anything, in the order of the lines of the first file that is named with a line:
  // a single error as it is, several as an ErrorList of at most 20. Errors without a line come last, in the
  // order in which they were found.
  void raise() const;

 private:
  std::vector<Error> all_;
};

}  // namespace heddle
