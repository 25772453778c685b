// Models on disk for the tests of the program: the golden ones, runs from them, and comparing directories.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "training_files.h"

namespace flow {

// The directory of the models that transformers wrote, with "/" behind it.
inline const std::string kGolden = HEDDLE_SOURCE_DIR "/tests/golden/";

// A run of two steps on two ranks that starts from `model`.
Words train(const TrainingFiles& files, const std::string& run, const std::string& model,
            const Words& more = {});

// config.json, the weights and their index.
std::set<std::string> model_files(const std::string& directory);

// The same model_files() with the same bytes.
void expect_same_files(const std::string& one, const std::string& other);

}  // namespace flow
