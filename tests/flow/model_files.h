// Models on disk for the tests of the program: golden models, runs from them, and comparison of directories.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "training_files.h"

namespace flow {

// Directory of the models that transformers wrote, with a trailing "/".
inline const std::string kGolden = HEDDLE_SOURCE_DIR "/tests/golden/";

// A run of two steps on two ranks that starts from `model`.
Words train(const TrainingFiles& files, const std::string& run, const std::string& model,
            const Words& more = {});

// Returns config.json, the weights and their index.
std::set<std::string> model_files(const std::string& directory);

// Checks that both directories have equal model_files().
void expect_same_files(const std::string& one, const std::string& other);

}  // namespace flow
