// Whether the data of a run are those of the checkpoint that it resumes from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// Of a set of texts, before its samples are there.
struct TextsOfRun {
  std::string named;      // for messages: "rows.jsonl and 2 more files"
  std::string texts;      // a checksum of their files; empty: not known
  std::string tokenizer;  // of its tokenizer.json; empty: not known
};

// The files of the training set's texts, in words; "": it is no set of texts.
std::string texts_named(const RunSpec& run);
std::string texts_named(const std::vector<DataInput>& inputs);

struct DataCheck {
  bool seeded = false;        // the seed decides the order
  bool accepts_data = false;  // other data are a warning
  std::string texts;          // texts_named()
};

// The order of the samples must be the one that the checkpoint `directory` is in. Throws Error{config} naming
// what differs; what is accepted is added to `warnings`.
void check_data(const std::filesystem::path& directory, const Position& there, const Position& here,
                const DataCheck& check, std::vector<std::string>& warnings);

// Throws Error{config} where the checkpoint was trained on other texts, or with another tokenizer.
void refuse_other_texts(const std::filesystem::path& directory, const Position& there,
                        const TextsOfRun& texts);

}  // namespace heddle
