// Completion scripts of shells, made from the table of commands.
#pragma once

#include <string>

#include "trainer/cli/main/pages/command_table.h"

namespace heddle::cli {

// Scripts to be sourced (bash), or to lie in a directory that the shell searches: as heddle for bash, _heddle
// for zsh and heddle.fish for fish. They call nothing outside the shell.
std::string bash_completion(const CommandTable& table);
std::string zsh_completion(const CommandTable& table);
std::string fish_completion(const CommandTable& table);

// A word in single quotes, for a POSIX shell.
std::string quoted(const std::string& word);

}  // namespace heddle::cli
