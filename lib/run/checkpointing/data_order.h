// Checks that a run has the same data as the checkpoint that it resumes from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// A set of texts, before its samples are prepared.
struct TextsOfRun {
  std::string named;      // for messages: "rows.jsonl and 2 more files"
  std::string texts;      // checksum of the files; empty: unknown
  std::string tokenizer;  // checksum of tokenizer.json; empty: unknown
};

// Describes the files of the training set's texts; "" if it is not a set of texts.
std::string texts_named(const RunSpec& run);
std::string texts_named(const std::vector<DataInput>& inputs);

struct DataCheck {
  bool seeded = false;        // the seed determines the order
  bool accepts_data = false;  // different data gives a warning instead of an error
  std::string texts;          // texts_named()
};

// Checks that the samples have the order that they had when the checkpoint `directory` was saved. Throws
// Error{config} that names the difference; accepted differences are added to `warnings`.
void check_data(const std::filesystem::path& directory, const Position& there, const Position& here,
                const DataCheck& check, std::vector<std::string>& warnings);

// Throws Error{config} if the checkpoint was trained on different texts or with another tokenizer.
void refuse_other_texts(const std::filesystem::path& directory, const Position& there,
                        const TextsOfRun& texts);

}  // namespace heddle
