// Runs the `heddle` program as a user does, and returns its output.
#pragma once

#include <string>
#include <vector>

namespace flow {

using Words = std::vector<std::string>;  // of a command line

Words plus(Words words, const Words& more);

struct Outcome {
  int status = -1;  // exit status; 128 + N if signal N ended the program
  std::string out, error;
};

// Runs heddle with these arguments. `environment` holds "NAME=value". The search path of plugins is the
// build's.
Outcome heddle(const Words& words, const Words& environment = {});

}  // namespace flow
