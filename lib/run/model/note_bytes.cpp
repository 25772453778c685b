// The note of a model that learns bytes of text.
#include "lib/run/model/note_bytes.h"

#include "lib/run/model/find_model.h"

namespace heddle {
namespace {

constexpr const char* kByteTokenizer = "{\"type\": \"bytes\"}\n";

}  // namespace

void note_bytes(checkpoint::HfOrigin& model, const std::filesystem::path& directory,
                std::vector<std::string>& warnings) {
  const auto& files = model.files;
  for (const char* own : {"tokenizer.json", "tokenizer.model"}) {
    if (!files.contains(own)) continue;
    warnings.push_back("the dataset's tokens are bytes of text, and the model has a " + std::string(own) +
                       ": heddle data --tokenizer " + directory.string() + " makes tokens of it");
    return;
  }
  model.files[kTokenizerNote] = kByteTokenizer;
}

}  // namespace heddle
