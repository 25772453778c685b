// A piece of work on disk that every rank does its part of.
#include "heddle/checkpoint/together.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestRound{20};
constexpr const char* kStill = "still at work";

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

// What a rank tells: "+" and what its work returned, or its error as JSON.
std::string outcome_of(const std::function<std::string()>& work) {
  std::string mine = "+";
  const std::optional<Error> failure = failure_of([&] { mine += work(); });
  if (!failure) return mine;
  const nlohmann::json words{static_cast<int>(failure->code()), failure->where(), failure->message(),
                             failure->hint()};
  return words.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // a path may hold any bytes
}

// The others wait for a collective's timeout and no longer, a disk may take more: a rank says in each round
// that it is still at work. One that is gone says nothing, which is seen as in any other meeting.
std::vector<std::string> meet(Rendezvous& meeting, const std::string& key,
                              const std::shared_future<std::string>& mine) {
  const auto begin = Clock::now();
  const auto patience = meeting.timeout();
  const auto round = std::min<std::chrono::milliseconds>(kLongestRound, patience / 4);
  for (auto next_word = begin + patience;;) {
    const bool done = mine.wait_for(round) == std::future_status::ready;
    std::vector<std::string> told = meeting.exchange(key, done ? mine.get() : std::string(kStill));
    const auto late = std::find(told.begin(), told.end(), kStill);
    if (late == told.end()) return told;
    if (meeting.rank() != 0 || Clock::now() < next_word) continue;
    next_word += patience;
    meeting.log().warning("checkpoint", waits_for(late - told.begin(), Clock::now() - begin));
  }
}

}  // namespace

// The rounds are a thread's, as the work may need what belongs to this one.
std::vector<std::string> tell_together(Rendezvous& meeting, const std::string& key,
                                       const std::function<std::string()>& work) {
  std::vector<std::string> told;
  if (meeting.world_size() == 1) {
    told = {outcome_of(work)};
  } else {
    std::promise<std::string> mine;
    auto rounds = std::async(std::launch::async, meet, std::ref(meeting), key, mine.get_future().share());
    mine.set_value(outcome_of(work));
    told = rounds.get();
  }
  for (std::string& text : told) {
    if (text.starts_with('+')) {
      text.erase(0, 1);
      continue;
    }
    const auto error = nlohmann::json::parse(text);
    throw Error(static_cast<ErrorCode>(error[0].get<int>()), error[1], error[2], error[3]);
  }
  return told;
}

void together(Rendezvous& meeting, const std::string& key, const std::function<void()>& work) {
  tell_together(meeting, key, [&] {
    work();
    return std::string();
  });
}

void on_first(Rendezvous& meeting, const std::string& key, const std::function<void()>& work) {
  together(meeting, key, [&] {
    if (meeting.rank() == 0) work();
  });
}

}  // namespace heddle::checkpoint
