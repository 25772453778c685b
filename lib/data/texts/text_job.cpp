// Computes the key and the message of a preparation job.
#include "lib/data/texts/text_job.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/huggingface/note_size.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/mapped_file.h"
#include "lib/data/samples/sample_set.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;  // version of keys and samples; a change makes all files anew
constexpr const char* kMoreTemplates = "additional_chat_templates";  // directory next to the tokenizer files
constexpr std::array<const char*, 6> kFilesOfTokenizer = {"tokenizer.json",          "tokenizer_config.json",
                                                          "special_tokens_map.json", "added_tokens.json",
                                                          "chat_template.jinja",     "config.json"};

// Reads a small file: a tokenizer file, a template, a script.
std::string content_of(const fs::path& file) {
  checkpoint::refuse_large_note(file);
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_file(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

// Checksums of files, cached by size and modification time.
class FileChecksums {
 public:
  explicit FileChecksums(fs::path notes) : notes_(std::move(notes)) {
    if (notes_.empty()) return;
    std::ifstream in(notes_);
    json read = json::parse(in, nullptr, false);
    const auto is_note = [](const json& one) {
      return one.is_array() && one.size() == 2 && one[1].is_string();
    };
    if (read.is_object() && std::all_of(read.begin(), read.end(), is_note))
      known_ = std::move(read);
    else if (is_file(notes_) && fs::file_size(notes_) > 0)
      notes_.clear();  // not written by heddle
  }

  // The cache only saves time, so a directory that is not writable is not an error.
  ~FileChecksums() {
    if (!is_changed_ || notes_.empty()) return;
    const fs::path fresh = notes_.string() + ".new";
    std::ofstream out(fresh);
    out << known_.dump();
    out.close();
    std::error_code ignored;
    if (out) fs::rename(fresh, notes_, ignored);
  }
  FileChecksums(const FileChecksums&) = delete;
  FileChecksums& operator=(const FileChecksums&) = delete;

  json of(const fs::path& file) {
    const MappedFile mapped(file);
    const json state = {mapped.bytes().size(), mapped.modified()};
    json& known = known_[fs::absolute(file).string()];
    if (known.is_array() && known.size() == 2 && known[0] == state) return {state[0], known[1]};
    const auto* bytes = reinterpret_cast<const char*>(mapped.bytes().data());
    known = {state, checkpoint::checksum({bytes, mapped.bytes().size()})};
    is_changed_ = true;
    return {state[0], known[1]};
  }

 private:
  fs::path notes_;
  json known_ = json::object();
  bool is_changed_ = false;
};

json arguments_of(const TextJob& job) {
  return json::parse(config::to_json(job.arguments));
}

// Templates and scripts are small files whose contents are part of the key.
struct KeyTexts {
  json checksums = json::object();
  bool asks_for_date = false;

  void add(const std::string& name, const std::string& content) {
    checksums[name] = checkpoint::checksum(content);
    asks_for_date |= content.find("strftime_now") != std::string::npos;
  }
};

KeyTexts texts_of(const TextJob& job) {
  KeyTexts out;
  out.add("script", content_of(job.script));
  if (!job.tokenizer.directory.empty())
    for (const char* name : kFilesOfTokenizer)
      if (const fs::path file = job.tokenizer.directory / name; is_file(file))
        out.add(name, content_of(file));
  std::error_code none;
  if (!job.tokenizer.directory.empty())
    for (const auto& entry : fs::directory_iterator(job.tokenizer.directory / kMoreTemplates, none))
      out.add(entry.path().filename().string(), content_of(entry.path()));
  const Node* given = job.arguments.find("chat_template");
  if (given != nullptr && given->kind() == Node::Kind::text)
    out.add("chat_template", is_file(given->as_text()) ? content_of(given->as_text()) : given->as_text());
  return out;
}

json checksums_of(const TextJob& job, FileChecksums& checksums) {
  json out;
  for (const auto& [split, files] : job.files.of_split)
    for (const fs::path& file : files) out[split].push_back(checksums.of(file));
  return out;
}

}  // namespace

std::string texts_checksum(const TextJob& job, const fs::path& notes) {
  FileChecksums checksums(notes);
  return checkpoint::checksum(checksums_of(job, checksums).dump());
}

std::string tokenizer_checksum(const TextTokenizer& tokenizer) {
  return tokenizer.directory.empty()
             ? ""
             : checkpoint::checksum(content_of(tokenizer.directory / "tokenizer.json"));
}

std::string key_of(const TextJob& job, const fs::path& notes) {
  FileChecksums checksums(notes);
  json arguments = arguments_of(job);
  for (const std::string& name : job.source_keys)
    if (arguments.contains(name)) arguments[name] = !arguments[name].is_null();
  json key = {{"format", kFormat},
              {"name", job.name},
              {"arguments", std::move(arguments)},
              {"tokenizer", json::parse(config::to_json(job.tokenizer.arguments))},
              {"nemo", job.tokenizer.is_nemo},
              {"local", job.files.is_local},
              {"apply_split", job.apply_split}};
  if (json files = checksums_of(job, checksums); !files.empty()) key["files"] = std::move(files);
  if (key["arguments"].value("split", json()) == kAllSplits) key["splits"] = job.files.splits;
  const KeyTexts texts = texts_of(job);
  key["texts"] = texts.checksums;
  if (texts.asks_for_date || job.is_dated) key["date"] = job.date;
  return checkpoint::checksum(key.dump());
}

json message_of(const TextJob& job, const std::string& key, const std::string& texts, const fs::path& out,
                int jobs) {
  json files = json::object();
  for (const auto& [split, of_split] : job.files.of_split)
    for (const fs::path& file : of_split) files[split].push_back(fs::absolute(file).string());
  const fs::path& tokenizer = job.tokenizer.directory;
  const fs::path config_json = tokenizer / "config.json";
  const json config = is_file(config_json) ? json(checkpoint::read_hf_json(config_json)) : json();
  json tokenizer_arguments = json::parse(config::to_json(job.tokenizer.arguments));
  tokenizer_arguments["use_nemo"] = job.tokenizer.is_nemo;
  const bool has_type =
      config.is_object() && config.contains("model_type") && config["model_type"].is_string();
  return {{"script", job.script.string()},
          {"arguments", arguments_of(job)},
          {"tokenizer", tokenizer.empty() ? "" : fs::absolute(tokenizer).string()},
          {"tokenizer_arguments", std::move(tokenizer_arguments)},
          {"model_type", has_type ? config["model_type"].get<std::string>() : ""},
          {"source", job.source},
          {"files", files},
          {"splits", job.files.splits},
          {"rows", job.files.rows},
          {"is_local", job.files.is_local && !job.apply_split},
          {"out", fs::absolute(out).string()},
          {"jobs", jobs},
          {"date", job.date},
          {"description",
           {{"name", job.name},
            {"key", key},
            {"tokenizer", tokenizer.empty() ? "" : fs::absolute(tokenizer).string()},
            {"texts", texts},
            {"tokenizer_digest", tokenizer_checksum(job.tokenizer)}}}};
}

std::vector<DataInput> inputs_of(const TextJob& job) {
  std::vector<DataInput> out;
  for (const auto& [split, files] : job.files.of_split)
    for (const fs::path& file : files) out.push_back({file, kTextsInput});
  for (const char* name : kFilesOfTokenizer)
    if (!job.tokenizer.directory.empty())
      out.push_back({job.tokenizer.directory / name, "a file of the run's tokenizer"});
  return out;
}

}  // namespace heddle
