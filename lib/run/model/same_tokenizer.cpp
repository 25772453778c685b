// Compares digests, first of bytes and then of what the JSON says.
#include "lib/run/model/same_tokenizer.h"

#include "heddle/base/error.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/run/data/tokenizer/token_note.h"
#include "lib/run/model/find_model.h"

namespace heddle {
namespace {

constexpr const char* kByteTokenizer = "{\"type\": \"bytes\"}\n";

}  // namespace

void check_tokenizer(const TokenDataset& dataset, const checkpoint::HfOrigin& model,
                     const std::string& where) {
  const auto own = model.files.find("tokenizer.json");
  if (own == model.files.end()) return;
  std::string digest, content;  // of the model's, when they are needed
  for (const TokenFile& file : dataset.files()) {
    const std::optional<TokenNote>& note = file.tokenizer();
    if (!note) continue;
    if (digest.empty()) digest = checkpoint::checksum(own->second);
    if (note->digest == digest) continue;
    if (content.empty()) content = tokenizer_content(own->second);
    if (note->content == content) continue;
    throw Error(ErrorCode::config, where,
                file.path().string() + " was made with another tokenizer than the model's: that of " +
                    note->name + " (vocabulary of " + std::to_string(note->vocabulary) + ", end token " +
                    std::to_string(note->end_token) + ", checksum " + note->digest +
                    "), and the model's tokenizer.json has checksum " + digest,
                "make the tokens again with heddle data --tokenizer of this model; or remove " +
                    note_beside(file.path()).string() + " if they are its tokens nevertheless");
  }
}

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
