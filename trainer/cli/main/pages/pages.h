// `heddle help` and `heddle completion`: texts generated from the declarations of all commands.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "trainer/cli/main/pages/command_table.h"

namespace heddle::cli {

// Returns heddle(1) as roff for the man(7) macros.
std::string manual_page(const CommandTable& table);

// Scripts to source (bash), or to install in a directory that the shell searches: as heddle for bash, _heddle
// for zsh and heddle.fish for fish. They run no external programs.
std::string bash_completion(const CommandTable& table);
std::string zsh_completion(const CommandTable& table);
std::string fish_completion(const CommandTable& table);

// Quotes a word with single quotes for a POSIX shell.
std::string quoted(const std::string& word);

struct PagesAsked {
  bool is_asked = false;
  std::vector<std::string> command;  // command of heddle help COMMAND; empty: the program itself
  bool manual = false;
  std::string shell;  // shell of heddle completion SHELL; empty: help is requested
};

void add_pages(CLI::App& app, PagesAsked& to);

// Returns the requested text. `with_show` declares `data show` where `app` declares `data`. A command whose
// footer is `overrides` takes overrides. Throws Error{usage} for an unknown command.
std::string page(const PagesAsked& asked, const CLI::App& app, const CLI::App& with_show,
                 const std::string& overrides);

// Returns the error "unknown command 'trian'", which suggests the nearest command.
Error unknown_command(const CLI::App& app, const std::string& word);

}  // namespace heddle::cli
