// Fuzzing targets for text files: config.json, resume positions, configurations.
#include <cstdlib>

#include "fuzz/checksummed.h"
#include "fuzz/files.h"
#include "fuzz/targets.h"
#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "lib/run/spec/position.h"
#include "tests/llama_model.h"

namespace heddle::fuzz {

// Checks that a parsed config.json is unchanged after writing and parsing it again.
void config_json(std::string_view bytes) {
  try {
    const ModelConfig config = read_model_config(files().write("config.json", bytes));
    if (read_model_config(files().write("again.json", to_config_json(config))) != config) std::abort();
  } catch (const Error&) {
  }
}

void position(std::string_view bytes) {
  for (const std::string& text : {std::string(bytes), checksummed(bytes)}) {
    try {
      const Position read = read_position(files().write(kPositionFile, text));
      if (read_position(files().write("again.json", to_json(read))) != read) std::abort();
    } catch (const Error&) {
    }
  }
}

// Writes the parsed configuration. Parsing it again would need UTF-8 text without variables.
void yaml(std::string_view bytes) {
  try {
    const Node root = config::read_text(std::string(bytes), "run.yaml");
    if (config::to_json(root).empty() || config::to_yaml(root).empty()) std::abort();
  } catch (const Error&) {
  }
}

}  // namespace heddle::fuzz
