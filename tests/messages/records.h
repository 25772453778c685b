// Records of `.test` files (README.md): inputs of `heddle` and the expected standard error.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace messages {

struct Record {
  std::filesystem::path file;
  std::string name;                // file name, title, and from the second input on its number
  std::string base;                // recipe file whose missing sections are added; empty: none
  int ranks = 1;                   // world size
  std::string yaml;                // sections of the recipe
  std::vector<std::string> words;  // lines that begin with `--`, or with `$`, which is dropped
  std::string text;                // expected standard error without the last newline; empty: nothing
  int status = 0;                  // expected exit status, from the errors in the text
  size_t begin = 0, end = 0;       // line range of the text in the file, from 0
};

std::ostream& operator<<(std::ostream& out, const Record& record);

// Reads the `.test` files of a folder in alphabetical order. Throws std::runtime_error with file and
// line.
std::vector<Record> read_records(const std::filesystem::path& folder);

// Returns the GoogleTest name: characters other than letters and digits become `_`.
std::string test_name(const Record& record);

// Returns the record's recipe: its own sections, plus the sections of the base that it lacks.
std::string recipe_of(const Record& record, const std::string& base);

// Placeholders of records and their values. A value that contains another value comes first.
using Placeholders = std::vector<std::pair<std::string, std::string>>;
std::string with_values(std::string text, const Placeholders& placeholders);
std::string with_placeholders(std::string text, const Placeholders& placeholders);

// Compares `printed` with the record, in which `{...}` matches any part of a line. Adds a failure at the
// record's line if they differ; with HEDDLE_WRITE_MESSAGES=1 rewrites the file instead.
void expect_printed(const Record& record, int status, const std::string& printed);

}  // namespace messages
