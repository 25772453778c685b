// Copies the folder, runs a step with learning rate 0, and compares the numbers.
#include "moves.h"

#include <cmath>
#include <fstream>
#include <regex>
#include <string>

#include "ends.h"

namespace kills {
namespace {

namespace fs = std::filesystem;

// Returns NaN if the metrics lack the step.
double number_of(const fs::path& folder, int64_t step, const std::string& key) {
  const std::regex number("\"" + key + "\":([-+.0-9e]+)");
  std::ifstream file(folder / "training.jsonl");
  double found = std::nan("");
  for (std::string line; std::getline(file, line);) {
    std::smatch words;
    if (line.starts_with("{\"step\":" + std::to_string(step) + ",") && std::regex_search(line, words, number))
      found = std::stod(words[1]);
  }
  return found;
}

void check_number(const fs::path& moved, const fs::path& whole, int64_t step, const std::string& key,
                  double most) {
  const double got = number_of(moved, step, key), wanted = number_of(whole, step, key);
  if (!(std::abs(got - wanted) <= most * std::abs(wanted)))
    throw Broken{key + " " + std::to_string(got) + " instead of " + std::to_string(wanted)};
}

bool move_one(Training other, const fs::path& cut, const fs::path& whole) {
  const auto [last, name] = *published(cut).rbegin();
  if (last == published(whole).rbegin()->first) return false;  // the training is complete
  const fs::path moved = cut.string() + "_moved";
  fs::remove_all(moved);
  fs::copy(cut, moved, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const std::string rate = "lr: 0.01";
  other.yaml.replace(other.yaml.find(rate), rate.size(), "lr: 0.0");
  const End end = live(up_to(other, static_cast<int>(last) + 2), moved, KillPoint{}, -1);
  if (end.status != 0) throw Broken{"status " + std::to_string(end.status) + ", " + end.errors};
  const auto after = published(moved);
  if (after.rbegin()->first != last + 1) throw Broken{"it did not train a step"};
  if (const std::string difference = apart(moved / after.rbegin()->second, cut / name); !difference.empty())
    throw Broken{difference};
  check_number(moved, whole, last + 1, "loss", 2e-5);
  check_number(moved, whole, last + 1, "grad_norm", 2e-4);
  return true;
}

}  // namespace

int move_on(const std::vector<Training>& others, const fs::path& cut, const fs::path& whole) {
  int moved = 0;
  for (const Training& other : others) try {
      moved += move_one(other, cut, whole) ? 1 : 0;
    } catch (const Broken& broken) {
      throw Broken{other.name + " from step " + std::to_string(published(cut).rbegin()->first) + ": " +
                   broken.what};
    }
  return moved;
}

}  // namespace kills
