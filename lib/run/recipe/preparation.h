// What becomes of data sets of texts that are not prepared yet.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace heddle {

struct PreparationOptions {
  bool make = true;                 // false: a set that is not prepared is only said to be so
  std::filesystem::path directory;  // of prepared files; empty: HEDDLE_DATA, else the run's own
  int jobs = 0;                     // threads of the preparation; 0: as many as cores
  std::function<void(const std::string& line)> say;  // how far it is; empty: nothing is said
};

}  // namespace heddle
