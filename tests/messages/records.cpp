// Reads, compares and rewrites records.
#include "messages/records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace messages {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr const char* kAccepted = "accepted";
// Error codes of failed runs. All other codes mean a wrong request (docs/reference/errors.md).
constexpr std::array kFailures = {"error[rank_lost]", "error[timeout]", "error[io]", "error[internal]",
                                  "error[diverged]"};

Lines lines_of(const std::string& text) {
  Lines out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

Lines lines_in(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return lines_of(out.str());
}

bool is_title(const std::string& line) {
  return line.starts_with("=== ");
}
bool begins_text(const std::string& line) {
  return line == kAccepted || line.starts_with("error[") || line.starts_with("warning: ");
}
bool continues_text(const std::string& line) {
  return (begins_text(line) && line != kAccepted) || line.starts_with("  ") || line.starts_with("| ");
}

// Returns the exit status of a command that prints `text` (docs/reference/errors.md).
int status_of(const std::string& text) {
  int status = 0;
  for (const std::string& line : lines_of(text))
    if (line.starts_with("error[")) {
      const auto is_code = [&](const char* code) { return line.starts_with(code); };
      status = std::max(status, std::any_of(kFailures.begin(), kFailures.end(), is_code) ? 1 : 2);
    }
  return status;
}

class Reader {
 public:
  explicit Reader(fs::path file) : file_(std::move(file)), lines_(lines_in(file_)) {}

  std::vector<Record> read() {
    Record head;
    head.file = file_;
    for (; at_ < lines_.size() && !is_title(lines_[at_]); ++at_)
      if (!is_blank()) read_input(head);
    while (at_ < lines_.size()) read_title(head);
    return std::move(records_);
  }

 private:
  bool is_blank() const { return lines_[at_].empty() || lines_[at_][0] == '#'; }

  void read_title(Record group) {
    const std::string title = file_.stem().string() + " " + lines_[at_++].substr(4);
    for (int number = 1; at_ < lines_.size() && !is_title(lines_[at_]);) {
      if (is_blank()) {
        ++at_;
        continue;
      }
      Record record = group;
      record.name = title + (number++ > 1 ? " " + std::to_string(number - 1) : "");
      if (!names_.insert(test_name(record)).second) fail("the title is repeated");
      read_record(record);
      group.base = record.base, group.ranks = record.ranks;
      records_.push_back(std::move(record));
    }
  }

  void read_record(Record& record) {
    const std::string common =
        std::exchange(record.yaml, "");  // appended after the record's sections: keeps line numbers
    for (; at_ < lines_.size() && !begins_text(lines_[at_]); ++at_) {
      if (is_title(lines_[at_])) fail("what is printed is missing");
      read_input(record);
    }
    if (at_ == lines_.size()) fail("what is printed is missing");
    record.yaml += common;
    record.begin = at_;
    if (lines_[at_] == kAccepted)
      record.end = ++at_;
    else
      read_text(record);
    record.status = status_of(record.text);
  }

  void read_text(Record& record) {
    for (; at_ < lines_.size() && continues_text(lines_[at_]); ++at_)
      record.text +=
          (record.text.empty() ? "" : "\n") + lines_[at_].substr(lines_[at_].starts_with("| ") ? 2 : 0);
    record.end = at_;
  }

  bool reads_setting(Record& record) const {
    const std::string& line = lines_[at_];
    if (line.starts_with("base ")) return record.base = line == "base none" ? "" : line.substr(5), true;
    if (line.starts_with("ranks ")) return record.ranks = std::stoi(line.substr(6)), true;
    return false;
  }

  void read_input(Record& record) const {
    const std::string& line = lines_[at_];
    if (reads_setting(record)) return;
    if (line.starts_with("$ "))
      record.words.push_back(line.substr(2));
    else if (line.starts_with("--") && line.size() > 2 &&
             std::isalpha(static_cast<unsigned char>(line[2])) != 0)
      record.words.push_back(line);
    else
      record.yaml += line + "\n";
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(file_.string() + ":" + std::to_string(at_ + 1) + ": " + what);
  }

  fs::path file_;
  Lines lines_;
  size_t at_ = 0;
  std::set<std::string> names_;
  std::vector<Record> records_;
};

// Returns the key of the section that begins in this line, or "".
std::string section_in(const std::string& line) {
  const size_t end = std::min(line.find(':'), line.size());
  const bool is_word = std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(end),
                                   [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_word && end < line.size() ? line.substr(0, end) : "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

bool line_matches(const std::string& pattern, const std::string& line) {
  const std::string any = "{...}";
  const size_t first = pattern.find(any);
  if (first == std::string::npos) return pattern == line;
  if (!line.starts_with(pattern.substr(0, first))) return false;
  for (size_t at = first; at <= line.size(); ++at)
    if (line_matches(pattern.substr(first + any.size()), line.substr(at))) return true;
  return false;
}

bool matches(const std::string& wanted, const std::string& printed) {
  const auto patterns = lines_of(wanted), lines = lines_of(printed);
  return std::equal(patterns.begin(), patterns.end(), lines.begin(), lines.end(), line_matches);
}

// Replaces the record's text in its file. Earlier records may have changed the line numbers.
void write(const Record& record, const std::string& text) {
  Lines lines = lines_in(record.file);
  const auto now = Reader(record.file).read();
  const auto place =
      std::find_if(now.begin(), now.end(), [&](const Record& other) { return other.name == record.name; });
  Lines printed = lines_of(text.empty() ? kAccepted : text);
  for (std::string& line : printed)
    if (!begins_text(line) && !line.starts_with("  ")) line.insert(0, "| ");
  const auto at = lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(place->begin),
                              lines.begin() + static_cast<std::ptrdiff_t>(place->end));
  lines.insert(at, printed.begin(), printed.end());
  std::ofstream out(record.file, std::ios::binary);
  for (const std::string& line : lines) out << line << "\n";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Record& record) {
  return out << record.file.filename().string() << ":" << record.begin + 1;
}

std::vector<Record> read_records(const fs::path& folder) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".test") files.insert(entry.path());
  std::vector<Record> out;
  for (const fs::path& file : files)
    for (Record& record : Reader(file).read()) out.push_back(std::move(record));
  return out;
}

std::string test_name(const Record& record) {
  std::string name = record.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

std::string recipe_of(const Record& record, const std::string& base) {
  std::set<std::string> own;
  for (const std::string& line : lines_of(record.yaml)) own.insert(section_in(line));
  std::string out = record.yaml;
  bool keeps = false;
  for (const std::string& line : lines_of(base)) {
    if (const std::string section = section_in(line); !section.empty()) keeps = !own.contains(section);
    if (keeps) out += line + "\n";
  }
  return out;
}

std::string with_values(std::string text, const Placeholders& placeholders) {
  for (const auto& [name, value] : placeholders) text = replaced(text, name, value);
  return text;
}

std::string with_placeholders(std::string text, const Placeholders& placeholders) {
  for (const auto& [name, value] : placeholders) text = replaced(text, value, name);
  return text;
}

void expect_printed(const Record& record, int status, const std::string& printed) {
  const std::string text = printed.substr(0, printed.find_last_not_of('\n') + 1);
  if (status == record.status && matches(record.text, text)) return;
  const char* const writes = std::getenv("HEDDLE_WRITE_MESSAGES");
  if (writes != nullptr && std::string(writes) == "1" && status == status_of(text))
    return write(record, text);
  ADD_FAILURE_AT(record.file.c_str(), static_cast<int>(record.begin) + 1)
      << record.name << "\nexpected status " << record.status << " and\n"
      << record.text << "\nprinted status " << status << " and\n"
      << text << "\nHEDDLE_WRITE_MESSAGES=1 writes what is printed to the file";
}

}  // namespace messages
