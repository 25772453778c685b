// Reads and keeps everything in a Hugging Face directory except the values.
#include "lib/checkpoint/huggingface/hf_origin.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/huggingface/note_size.h"
#include "lib/checkpoint/quantized/base_weights.h"
#include "lib/checkpoint/safetensors/dtype_names.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kTensors = "tensors.json";
constexpr const char* kCopyAgain =
    "copy the checkpoint again, or remove the file: an export then chooses files by size";

// Files that transformers reads besides weights; heddle_tokenizer.json is heddle's note that tokens are
// bytes.
constexpr std::array<const char*, 13> kNotes = {"config.json",
                                                "generation_config.json",
                                                "tokenizer.json",
                                                "tokenizer_config.json",
                                                "special_tokens_map.json",
                                                "added_tokens.json",
                                                "vocab.json",
                                                "vocab.txt",
                                                "merges.txt",
                                                "chat_template.json",
                                                "preprocessor_config.json",
                                                "processor_config.json",
                                                "heddle_tokenizer.json"};
// sentencepiece models, chat templates, tiktoken's vocabularies, modeling code.
constexpr std::array<const char*, 4> kEndings = {".model", ".jinja", ".tiktoken", ".py"};

bool is_note(const fs::path& file) {
  const std::string name = file.filename().string(), ending = file.extension().string();
  return std::find(kNotes.begin(), kNotes.end(), name) != kNotes.end() ||
         std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

// Whether the name can be a file of weights in the directory: a plain name that is not one of the notes.
bool may_hold_weights(const std::string& name) {
  const fs::path file(name);
  return !name.empty() && name.find('\0') == std::string::npos && file.filename() == file && name != "." &&
         name != ".." && !is_note(file);
}

std::string read_bytes(const fs::path& file) {
  refuse_irregular(file, ErrorCode::input);
  refuse_large_note(file);
  std::ifstream stream(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw Error(ErrorCode::input, file.string(), "cannot be read");
  return bytes;
}

std::map<std::string, std::string> read_notes(const fs::path& directory) {
  std::map<std::string, std::string> notes;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, failed))
    if (is_note(entry.path()) && entry.is_regular_file(failed))
      notes.emplace(entry.path().filename().string(), read_bytes(entry.path()));
  for (const fs::directory_entry& entry : fs::directory_iterator(directory / kNamedTemplates, failed))
    if (entry.path().extension() == ".jinja" && entry.is_regular_file(failed))
      notes.emplace((kNamedTemplates / entry.path().filename()).string(), read_bytes(entry.path()));
  return notes;
}

std::string metadata_of(const std::string& index) {
  return write_hf_json(parse_hf_json(index, "the index").value("metadata", ordered_json::object()), -1);
}

}  // namespace

HfOrigin read_origin(const fs::path& directory, const HfWeights& weights) {
  HfOrigin origin;
  const std::shared_ptr<const HfWeights> borrowed(std::shared_ptr<void>(), &weights);
  const std::optional<Quantization> form = quantization_in(directory);
  const BaseWeights base(directory, borrowed, form);
  for (const std::string& name : base.names()) {
    const at::ScalarType dtype = base.is_quantized(name) ? at::kBFloat16 : weights.at(name).dtype;
    origin.tensors.emplace(name, HfOrigin::Tensor{base.file(name), dtype});
  }
  if (!weights.index().empty()) origin.index = metadata_of(weights.index());
  origin.files = read_notes(directory);
  if (form) origin.files["config.json"] = without_quantization(origin.files.at("config.json"));
  return origin;
}

void keep_origin(const fs::path& place, const HfOrigin& origin) {
  std::error_code failed;
  fs::create_directories(place, failed);
  if (failed)
    throw Error(ErrorCode::io, place.string(), "cannot be created: " + failed.message(),
                "check the path and its permissions");
  for (const auto& [name, bytes] : origin.files) write_note(place, name, bytes);
  if (origin.tensors.empty()) return;
  ordered_json out{{"version", 1}, {"index", nullptr}};
  if (!origin.index.empty()) out["index"] = parse_hf_json(origin.index, "the index");
  ordered_json::object_t tensors;  // its operator[] searches all keys
  for (const auto& [name, tensor] : origin.tensors)
    tensors.emplace_back(name, ordered_json{{"file", tensor.file}, {"dtype", name_of_dtype(tensor.dtype)}});
  out["tensors"] = std::move(tensors);
  write_text(place / kTensors, write_hf_json(out, 1) + "\n");
}

void write_note(const fs::path& directory, const std::string& name, const std::string& bytes) {
  const fs::path file = directory / name;
  make_directories(file.parent_path());
  write_text(file, bytes);
}

HfOrigin kept_origin(const fs::path& place) {
  HfOrigin origin;
  origin.files = read_notes(place);
  std::error_code ignored;
  const fs::path file = place / kTensors;
  if (!fs::exists(file, ignored)) return origin;
  try {
    const std::string bytes = read_bytes(file);
    const auto kept = hf_json_if_valid(bytes);
    if (!kept) throw Error(ErrorCode::input, file.string(), "is not JSON, or nests too deep", kCopyAgain);
    if (!kept->at("index").is_null()) origin.index = write_hf_json(kept->at("index"), -1);
    for (const auto& [name, entry] : kept->at("tensors").items()) {
      const std::string shard = entry.at("file");
      const auto dtype = dtype_named(entry.at("dtype").get<std::string>());
      if (!dtype || !may_hold_weights(shard))
        throw Error(ErrorCode::input, file.string(),
                    "tensor " + text::quoted(name) + ": expected a dtype and the name of a file");
      origin.tensors.emplace(name, HfOrigin::Tensor{shard, *dtype});
    }
  } catch (const ordered_json::exception& error) {
    throw Error(ErrorCode::input, file.string(), "cannot be read: " + text::excerpt(error.what(), 400),
                kCopyAgain);
  }
  return origin;
}

}  // namespace heddle::checkpoint
