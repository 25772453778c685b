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

void together(Rendezvous& meeting, const std::string& key, const std::function<void()>& work) {
  const std::optional<Error> failure = failure_of(work);
  nlohmann::json mine;
  if (failure)
    mine = {static_cast<int>(failure->code()), failure->where(), failure->message(), failure->hint()};
  const auto replace = nlohmann::json::error_handler_t::replace;  // a path may hold any bytes
  for (const std::string& text : meeting.exchange(key, mine.dump(-1, ' ', false, replace))) {
    const auto told = nlohmann::json::parse(text);
    if (!told.is_null()) throw Error(static_cast<ErrorCode>(told[0].get<int>()), told[1], told[2], told[3]);
  }
}

void on_first(Rendezvous& meeting, const std::string& key, const std::function<void()>& work) {
  together(meeting, key, [&] {
    if (meeting.rank() == 0) work();
  });
}

}  // namespace heddle::checkpoint
