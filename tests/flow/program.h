// Runs the `heddle` program as a person does, and gives what it printed.
#pragma once

#include <string>
#include <vector>

namespace flow {

using Words = std::vector<std::string>;  // of a command line

Words plus(Words words, const Words& more);

struct Outcome {
  int status = -1;  // exit status; 128 + N when signal N ended it
  std::string out, error;
};

// The words after `heddle`; `environment` holds "NAME=value". The search path of plugins is the build's own.
Outcome heddle(const Words& words, const Words& environment = {});

}  // namespace flow
