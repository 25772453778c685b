// File operations of all ranks that succeed on all ranks or fail on all ranks.
#include "heddle/checkpoint/sharded.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <optional>
#include <utility>

#include "core/mesh/packed.h"
#include "heddle/base/error.h"

namespace heddle::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestRound{20};

std::string waits_for(int64_t rank, Clock::duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  return "rank " + std::to_string(rank) + " has been reading or writing files for " +
         std::to_string(seconds) + " s; the others wait for it";
}

std::optional<Error> failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::filesystem::filesystem_error& error) {
    return Error(ErrorCode::io, error.path1().string(), "failed: " + error.code().message(),
                 "check the path, its permissions and the room on the disk");
  } catch (const std::exception& error) {
    return Error(ErrorCode::internal, "checkpoint", error.what());
  } catch (...) {
    return Error(ErrorCode::internal, "checkpoint", "something unknown was thrown");
  }
  return std::nullopt;
}

// A rank's message: still at work, "+" with the result of its work, or "-" with its error.
constexpr char kStill = '.', kDone = '+', kFailed = '-';

std::string outcome_of(const std::function<std::string()>& work) {
  std::string mine(1, kDone);
  const std::optional<Error> failure = failure_of([&] { mine += work(); });
  return failure ? kFailed + mesh::pack(*failure) : mine;
}

// On rank 0, from all messages: whether some are still at work. Throws the error of the lowest rank that
// failed, once all have ended.
class Round {
 public:
  std::vector<std::string> answer(std::span<const std::string> texts) {
    const auto starts_with = [](char mark) {
      return [mark](const std::string& text) { return text.front() == mark; };
    };
    const auto late = std::find_if(texts.begin(), texts.end(), starts_with(kStill));
    if (late != texts.end()) return {std::to_string(late - texts.begin())};
    const auto failed = std::find_if(texts.begin(), texts.end(), starts_with(kFailed));
    if (failed != texts.end()) throw mesh::unpack_error(std::string_view(*failed).substr(1));
    for (const std::string& text : texts) told_.push_back(text.substr(1));
    return {""};
  }
  std::vector<std::string> told() { return std::move(told_); }

 private:
  std::vector<std::string> told_;
};

// Ranks wait at most for the timeout of a collective, and a disk may take longer: a rank reports in each
// round that it is still at work. A lost rank is found as in any other rendezvous.
std::vector<std::string> meet(Rendezvous& rendezvous, const std::string& key,
                              const std::shared_future<std::string>& mine) {
  const auto begin = Clock::now();
  const auto patience = rendezvous.timeout();
  const auto round = std::min<std::chrono::milliseconds>(kLongestRound, patience / 4);
  Round last;
  for (auto next_word = begin + patience;;) {
    const bool done = mine.wait_for(round) == std::future_status::ready;
    const std::string late =
        rendezvous.meet(key, done ? mine.get() : std::string(1, kStill),
                        [&](std::span<const std::string> texts) { return last.answer(texts); });
    if (late.empty()) return last.told();
    if (rendezvous.rank() != 0 || Clock::now() < next_word) continue;
    next_word += patience;
    rendezvous.log().warning("checkpoint", waits_for(std::stoi(late), Clock::now() - begin));
  }
}

}  // namespace

// The rounds run on a thread, because the work may need this thread's state.
std::vector<std::string> gather_on_first(Rendezvous& rendezvous, const std::string& key,
                                         const std::function<std::string()>& work) {
  if (rendezvous.world_size() == 1) {
    const std::vector<std::string> mine = {outcome_of(work)};
    Round alone;
    alone.answer(mine);
    return alone.told();
  }
  std::promise<std::string> mine;
  auto rounds = std::async(std::launch::async, meet, std::ref(rendezvous), key, mine.get_future().share());
  mine.set_value(outcome_of(work));
  return rounds.get();
}

void on_every_rank(Rendezvous& rendezvous, const std::string& key, const std::function<void()>& work) {
  gather_on_first(rendezvous, key, [&] {
    work();
    return std::string();
  });
}

void on_first(Rendezvous& rendezvous, const std::string& key, const std::function<void()>& work) {
  on_every_rank(rendezvous, key, [&] {
    if (rendezvous.rank() == 0) work();
  });
}

}  // namespace heddle::checkpoint
