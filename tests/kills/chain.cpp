// Kills and resumes one training repeatedly, and checks the checkpoints and the final state.
#include "chain.h"

#include <utility>

#include "ends.h"

namespace kills {
namespace fs = std::filesystem;

Chain::Chain(Training training, fs::path folder, uint64_t seed)
    : training_(std::move(training)),
      cut_(folder / "cut"),
      whole_(folder / "whole"),
      random_(seed),
      operations_(training_.ranks) {
  for (int rank = 0; rank < training_.ranks; ++rank) {
    fs::remove_all(whole_);
    const End end = live(training_, whole_, KillPoint{}, rank);
    if (end.status != 0) throw Broken{"the undisturbed run failed: " + end.errors};
    operations_[rank] = operations();
    if (operations_[rank] == 0) throw Broken{"no operation on a file is seen"};
    if (rank > 0 && end_of(whole_) != wanted_)
      throw Broken{"two undisturbed runs do not end with the same bits"};
    wanted_ = end_of(whole_);
  }
  checkpoints_ = static_cast<int64_t>(wanted_.empty() ? 0 : published(whole_).rbegin()->first + 1);
}

int Chain::kill(int kills) {
  fs::remove_all(cut_);
  while (killed_ < kills) live_once();
  const End last = live(training_, cut_, KillPoint{}, 0);
  if (last.status != 0) throw Broken{"the last life failed: " + last.errors};
  check_the_end();
  return ends_;
}

void Chain::live_once() {
  const auto before = published(cut_);
  const int rank = static_cast<int>(random_() % static_cast<uint64_t>(training_.ranks));
  const KillPoint one = draw(rank);
  const End end = live(training_, cut_, one, rank);
  const std::string tale = "life " + std::to_string(killed_) + ", rank " + std::to_string(rank) +
                           ", operation " + std::to_string(one.operation) + ": ";
  const auto after = published(cut_);
  for (const auto& [step, name] : before)
    if (!after.contains(step) &&
        (training_.kept == 0 || after.empty() || after.rbegin()->first - step < training_.kept))
      throw Broken{tale + "the checkpoint " + name + " was lost"};
  try {
    check_pointers(cut_);
  } catch (const Broken& broken) {
    throw Broken{tale + broken.what};
  }
  if (end.status == 0) {
    check_the_end();
    fs::remove_all(cut_);
    return;
  }
  ++killed_;
  const bool killed =
      end.status == 128 + 9 || (end.status == 1 && end.errors.find("error[rank_lost]") != std::string::npos);
  const bool clean =
      end.errors.find("error[io]") == std::string::npos && end.errors.find("error[in") == std::string::npos;
  if (!killed || !clean) throw Broken{tale + "status " + std::to_string(end.status) + ", " + end.errors};
  if (look_ && killed_ % 10 == 0 && !after.empty()) look_(cut_, whole_);
}

// Draws an operation within about the next three checkpoints.
KillPoint Chain::draw(int rank) {
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most));
  };
  KillPoint one;
  one.when = static_cast<KillPoint::When>(below(4));
  one.whom = static_cast<KillPoint::Whom>(below(2));
  one.operation = 1 + below(3 * operations_[rank] / checkpoints_ + 4);
  one.microseconds = below(4000);
  return one;
}

void Chain::check_the_end() {
  check_whole(cut_);
  if (end_of(cut_) != wanted_) throw Broken{"the end is another one than that of the undisturbed run"};
  ++ends_;
}

}  // namespace kills
