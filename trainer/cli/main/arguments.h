// Parses the command line into a Command, or answers --help and --version itself.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Text for standard output, after which the program exits with status 0.
struct Answer {
  std::string text;
};

// Parses the arguments after the program's name. Throws Error{usage}, which suggests the nearest command, and
// Error{not_built} for commands that are not built.
std::variant<Answer, Command> parse(std::span<const std::string> words);

// Removes overrides from `words` and returns them: "--SECTION.KEY VALUE", "--SECTION.KEY=VALUE", a bare
// "--SECTION.KEY" (true), and whole sections by name ("--seed 7", "--lr_scheduler none").
std::vector<Override> take_overrides(std::vector<std::string>& words);

}  // namespace heddle::cli
