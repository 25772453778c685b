// Records of `.test` files (README.md): inputs of `heddle`, and what each prints on standard error.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace messages {

struct Record {
  std::filesystem::path file;
  std::string name;                // of the file, the title, and the number of the input from the second on
  std::string base;                // file of the recipe whose sections are added; empty: none
  int ranks = 1;                   // world size
  std::string yaml;                // sections of the recipe
  std::vector<std::string> words;  // lines that begin with `--`, or with `$` and without it
  std::string text;                // expected on standard error, without the last line break; empty: nothing
  int status = 0;                  // expected: that of the errors in the text
  size_t begin = 0, end = 0;       // lines of the text in the file, from 0
};

std::ostream& operator<<(std::ostream& out, const Record& record);

// Reads the `.test` files of a folder in the order of their names. Throws std::runtime_error with file and
// line.
std::vector<Record> read_records(const std::filesystem::path& folder);

// The name as GoogleTest takes it: every other character than letters and digits as `_`.
std::string test_name(const Record& record);

// The recipe of the record: its own sections, then those sections of the base that it lacks.
std::string recipe_of(const Record& record, const std::string& base);

// Placeholders of records and what each stands for. A value that contains another one comes first.
using Placeholders = std::vector<std::pair<std::string, std::string>>;
std::string with_values(std::string text, const Placeholders& placeholders);
std::string with_placeholders(std::string text, const Placeholders& placeholders);

// Compares what was printed with the record, in which `{...}` stands for any part of a line. A difference is
// a failure at the record's line; with HEDDLE_WRITE_MESSAGES=1 it is written to the file instead.
void expect_printed(const Record& record, int status, const std::string& printed);

}  // namespace messages
