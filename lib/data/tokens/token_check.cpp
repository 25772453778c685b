// Checks data sets, and caches the token range of each file in notes.
#include "lib/data/tokens/token_check.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Notes = nlohmann::ordered_json;

// State of a file when it was read: if it changed, the file is read again.
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

// A note: the JSON of a token file's range, or any text of another data set.
Notes json_of(const std::string& text) {
  Notes parsed = Notes::parse(text, nullptr, false);
  return parsed.is_object() && parsed.contains("file") ? parsed : Notes{{"note", text}};
}

std::string text_of(const Notes& note) {
  const Notes text = note.is_object() ? note.value("note", Notes()) : Notes();
  return text.is_string() ? text.get<std::string>() : note.dump();
}

void read_all(const Rows& rows, int64_t vocabulary) {
  std::vector<int64_t> tokens(static_cast<size_t>(rows.length())), labels(tokens.size());
  std::vector<int32_t> documents;
  for (int64_t row = 0; row < rows.size(); ++row) {
    documents.clear();
    const auto length = static_cast<size_t>(rows.length_for(rows.text_tokens(row)));
    rows.read(row, vocabulary, {std::span(tokens).first(length), std::span(labels).first(length), documents});
  }
}

}  // namespace

bool in_vocabulary(TokenRange range, int64_t vocabulary) {
  return range.least >= 0 && range.most < vocabulary;
}

bool is_token_notes(const fs::path& file) {
  const Notes notes = read_notes(file);
  return !notes.empty() && std::all_of(notes.begin(), notes.end(), [](const Notes& one) {
    return one.is_object() && ((one.contains("file") && one.contains("least")) || one.contains("note"));
  });
}

TokenRange noted_range(const TokenFile& file, DataNotes& notes) {
  const std::string name = fs::absolute(file.path()).lexically_normal().string();
  const Notes state = scan_state_of(file);
  for (const auto* texts : {&notes.now, &notes.before}) {
    const auto found = texts->find(name);
    if (found == texts->end()) continue;
    const std::string text = found->second;
    if (const auto known = noted(Notes::parse(text, nullptr, false), state)) {
      notes.now[name] = text;
      return *known;
    }
  }
  const TokenRange range = file.range();
  notes.now[name] = Notes{{"file", state}, {"least", range.least}, {"most", range.most}}.dump();
  return range;
}

void check_tokens(std::span<const Rows* const> datasets, int64_t vocabulary, const fs::path& notes) {
  const Notes before = notes.empty() ? Notes::object() : read_notes(notes);
  DataNotes texts;
  for (const auto& [name, note] : before.items()) texts.before[name] = text_of(note);
  for (const Rows* rows : datasets)
    if (!rows->samples().verify(texts)) read_all(*rows, vocabulary);
  Notes after = Notes::object();
  for (const auto& [name, text] : texts.now) after[name] = json_of(text);
  if (notes.empty() || after.empty() || after == before) return;
  checkpoint::make_directories(notes.parent_path());
  checkpoint::write_text(notes, after.dump(1) + "\n");
}

}  // namespace heddle
