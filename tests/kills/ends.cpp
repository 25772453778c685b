// Reads the checkpoints and metrics that killed runs leave behind.
#include "ends.h"

#include <fstream>
#include <regex>
#include <sstream>

#include "heddle/checkpoint/sharded.h"
#include "life.h"

namespace kills {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace

std::map<int64_t, std::string> published(const fs::path& folder) {
  static const std::regex kName("epoch_[0-9]+_step_([0-9]+)");
  std::map<int64_t, std::string> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    std::smatch words;
    const std::string name = entry.path().filename().string();
    if (std::regex_match(name, words, kName)) found[std::stoll(words[1])] = name;
  }
  return found;
}

std::string end_of(const fs::path& folder) {
  static const std::regex kClock(
      R"re("(timestamp|mem|tps|tps_per_gpu|mfu|tflops|step_time)":("[^"]*"|[^,}]*))re");
  const fs::path last = folder / published(folder).rbegin()->second;
  return text_of(last / "model/manifest.json") + text_of(last / "optim/manifest.json") +
         std::regex_replace(text_of(folder / "training.jsonl") + text_of(folder / "validation.jsonl"), kClock,
                            "") +
         heddle::checkpoint::pointed(folder / "LOWEST_VAL");
}

void check_pointers(const fs::path& folder) {
  for (const char* link : {"LATEST", "LOWEST_VAL"})
    if (fs::is_symlink(folder / link) && !fs::exists(folder / link / "step_scheduler.json"))
      throw Broken{std::string(link) + " names no complete checkpoint"};
}

void check_whole(const fs::path& folder) {
  check_pointers(folder);
  if (const std::string error = read_all(folder); !error.empty())
    throw Broken{"a checkpoint is damaged: " + error};
}

}  // namespace kills
