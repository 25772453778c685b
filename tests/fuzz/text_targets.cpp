// Fuzzing targets for text files: config.json, resume positions, configurations.
#include <cstdlib>

#include "fuzz/checksummed.h"
#include "fuzz/files.h"
#include "fuzz/targets.h"
#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "heddle/model/config_keys.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "lib/run/spec/position.h"
#include "plugins/llama/families.h"

namespace heddle::fuzz {
namespace {

// Returns the model of a family of the llama plugin; null: the file has another model_type.
std::unique_ptr<ModelSpec> read_any(const std::filesystem::path& file) {
  static const Offer offered = [] {
    Offer out;
    for (const auto offer : llama::kOffers) offer(out);
    return out;
  }();
  const Node keys = checkpoint::read_config_json(file);
  const std::string type = model::text_or(keys, "model_type", "");
  for (const OfferedThing& thing : offered.things())
    if (const auto* family = dynamic_cast<const OfferedModel*>(thing.schema.get());
        family != nullptr && family->name == type)
      return family->make()->read(keys, UnknownKeys::passed_over);
  return nullptr;
}

}  // namespace

// Checks that a parsed config.json is unchanged after writing and parsing it again.
void config_json(std::string_view bytes) {
  try {
    const auto model = read_any(files().write("config.json", bytes));
    if (model == nullptr) return;
    const std::string written = model->config_json("float32");
    const auto again = read_any(files().write("again.json", written));
    if (again->config_json("float32") != written || again->signature() != model->signature()) std::abort();
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
