// `heddle help` and `heddle completion`: texts generated from the declarations of all commands.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::cli {

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
