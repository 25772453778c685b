// The range of tokens in each file, and the notes that record it.
#include "lib/run/data/token_check.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "lib/run/data/token_range.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Notes = nlohmann::ordered_json;

// The state of a file when it was read: if any of it differs, the file is read again.
Notes scan_state_of(const TokenFile& file) {
  return {{"bytes", file.bytes()},
          {"modified", file.modified()},
          {"type", static_cast<int>(file.type())},
          {"tokens", file.size()}};
}

Notes read_notes(const fs::path& notes) {
  std::ifstream in(notes);
  const Notes parsed = Notes::parse(in, nullptr, false);  // unreadable notes are made again
  return parsed.is_object() ? parsed : Notes::object();
}

std::optional<TokenRange> noted(const Notes& known, const Notes& state) {
  if (!known.is_object() || known.value("file", Notes()) != state) return std::nullopt;
  const Notes least = known.value("least", Notes()), most = known.value("most", Notes());
  if (!least.is_number_integer() || !most.is_number_integer()) return std::nullopt;
  return TokenRange{least.get<int64_t>(), most.get<int64_t>()};
}

bool range_fits(TokenRange range, int64_t vocabulary) {
  return range.least >= 0 && range.most < vocabulary;
}

}  // namespace

bool is_token_notes(const fs::path& file) {
  const Notes notes = read_notes(file);
  return !notes.empty() && std::all_of(notes.begin(), notes.end(), [](const Notes& one) {
    return one.is_object() && one.contains("file") && one.contains("least");
  });
}

void check_tokens(std::span<const TokenDataset* const> datasets, int64_t vocabulary, const fs::path& notes) {
  const Notes before = notes.empty() ? Notes::object() : read_notes(notes);
  Notes after = Notes::object();
  for (const TokenDataset* dataset : datasets) {
    for (const TokenFile& file : dataset->files()) {
      if (file.size() == 0 || range_fits(range_of(file.type()), vocabulary)) continue;
      const std::string name = fs::absolute(file.path()).lexically_normal().string();
      const Notes state = scan_state_of(file);
      const std::optional<TokenRange> known = noted(after.value(name, before.value(name, Notes())), state);
      const TokenRange range = known ? *known : file.range();
      if (!range_fits(range, vocabulary)) dataset->refuse_outside(file, vocabulary);
      after[name] = {{"file", state}, {"least", range.least}, {"most", range.most}};
    }
  }
  if (notes.empty() || after.empty() || after == before) return;
  checkpoint::make_directories(notes.parent_path());
  checkpoint::write_text(notes, after.dump(1) + "\n");
}

}  // namespace heddle
