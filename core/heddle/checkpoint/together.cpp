// A piece of work on disk that every rank does its part of.
#include "heddle/checkpoint/together.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"

namespace heddle::checkpoint {
namespace {

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
  }
  return std::nullopt;
}

}  // namespace

// What a rank tells: "+" and what its work returned, or its error as JSON.
std::vector<std::string> tell_together(Rendezvous& meeting, const std::string& key,
                                       const std::function<std::string()>& work) {
  std::string mine = "+";
  const std::optional<Error> failure = failure_of([&] { mine += work(); });
  if (failure) {
    const nlohmann::json words{static_cast<int>(failure->code()), failure->where(), failure->message(),
                               failure->hint()};
    mine = words.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // a path may hold any bytes
  }
  std::vector<std::string> told = meeting.exchange(key, mine);
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
