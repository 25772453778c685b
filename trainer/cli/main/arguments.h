// Reads the arguments of the command line into a Command, or answers --help and --version itself.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/cli/commands.h"

namespace heddle::cli {

// A text for standard output; the program ends with status 0.
struct Answer {
  std::string text;
};

// The arguments after the program's name. Throws Error{usage}, with the nearest command where one is meant,
// and Error{not_built} for commands that come later.
std::variant<Answer, Command> parse(std::span<const std::string> words);

// "--SECTION.KEY VALUE", "--SECTION.KEY=VALUE" and a bare "--SECTION.KEY" (true) are taken out of `words`; so
// are whole sections by their name ("--seed 7", "--lr_scheduler none").
std::vector<Override> take_overrides(std::vector<std::string>& words);

}  // namespace heddle::cli
