// `heddle help` and `heddle completion`: texts made from the declarations of all commands.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::cli {

struct PagesAsked {
  bool is_asked = false;
  std::vector<std::string> command;  // heddle help COMMAND; empty: the program's own
  bool manual = false;
  std::string shell;  // heddle completion SHELL; empty: help is asked for
};

void add_pages(CLI::App& app, PagesAsked& to);

// The text asked for. `with_show` is the program with `data show` where `app` has `data`. A command whose
// footer is `overrides` takes overrides. Throws Error{usage} for a command that is not there.
std::string page(const PagesAsked& asked, const CLI::App& app, const CLI::App& with_show,
                 const std::string& overrides);

// "unknown command 'trian'", with the nearest one.
Error unknown_command(const CLI::App& app, const std::string& word);

}  // namespace heddle::cli
