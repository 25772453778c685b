// Completion scripts for shells, generated from the table of commands.
#pragma once

#include <string>

#include "trainer/cli/main/pages/command_table.h"

namespace heddle::cli {

// Scripts to source (bash), or to install in a directory that the shell searches: as heddle for bash, _heddle
// for zsh and heddle.fish for fish. They run no external programs.
std::string bash_completion(const CommandTable& table);
std::string zsh_completion(const CommandTable& table);
std::string fish_completion(const CommandTable& table);

// Quotes a word with single quotes for a POSIX shell.
std::string quoted(const std::string& word);

}  // namespace heddle::cli
