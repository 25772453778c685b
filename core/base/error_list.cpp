// Errors are sorted by the line in their place, "run.yaml:14 optimizer.lr".
#include "heddle/base/error.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <tuple>
#include <utility>

namespace heddle {
namespace {

constexpr size_t kMostErrors = 20;       // that are raised
constexpr size_t kMostHeldErrors = 200;  // so that an error is compared with few others

struct PlaceOfError {
  std::string file;
  long line = std::numeric_limits<long>::max();  // as large as this: none
};

PlaceOfError parsed(const std::string& where) {
  for (size_t colon = where.find(':'); colon != where.npos; colon = where.find(':', colon + 1)) {
    PlaceOfError place{where.substr(0, colon)};
    const char* const end = where.data() + where.size();
    const auto [after, failure] = std::from_chars(where.data() + colon + 1, end, place.line);
    if (failure == std::errc() && (after == end || *after == ' ')) return place;
  }
  return {};
}

// The first file that is named with a line; "": none.
std::string first_file(const std::vector<Error>& all) {
  for (const Error& error : all)
    if (std::string file = parsed(error.where()).file; !file.empty()) return file;
  return "";
}

// Indices of the errors that are raised, in their order: status 2 before 1, then by the lines of the first
// file.
std::vector<size_t> raised(const std::vector<Error>& all) {
  using Key = std::tuple<int, bool, long, size_t>;
  const std::string first = first_file(all);
  std::vector<Key> keys;
  for (size_t i = 0; i < all.size(); ++i) {
    const PlaceOfError place = parsed(all[i].where());
    const bool is_elsewhere = place.file != first || place.file.empty();
    keys.emplace_back(-exit_status(all[i].code()), is_elsewhere, is_elsewhere ? 0 : place.line, i);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<size_t> out;
  for (size_t i = 0; i < std::min(keys.size(), kMostErrors); ++i) out.push_back(std::get<size_t>(keys[i]));
  return out;
}

std::string joined(const std::vector<Error>& all) {
  std::string out;
  for (const Error& error : all) out += (out.empty() ? "" : "\n") + std::string(error.what());
  return out;
}

// The object within {"error": {...}}.
std::string inner(const Error& error) {
  constexpr std::string_view kFront = "{\"error\": ";
  const std::string whole = error.Error::json();
  return whole.substr(kFront.size(), whole.size() - kFront.size() - 1);
}

}  // namespace

ErrorList::ErrorList(std::vector<Error> errors)
    : Error(errors.front()), all_(std::move(errors)), blocks_(joined(all_)) {}

ErrorList::~ErrorList() = default;

std::string to_json(const Error& error) {
  const auto* list = dynamic_cast<const ErrorList*>(&error);
  if (list == nullptr) return error.json();
  std::string all;
  for (const Error& one : list->all()) all += (all.empty() ? "" : ", ") + inner(one);
  return "{\"error\": " + inner(list->all().front()) + ", \"errors\": [" + all + "]}";
}

void Errors::add(const Error& error) {
  if (const auto* list = dynamic_cast<const ErrorList*>(&error)) {
    for (const Error& one : list->all()) add(one);
    return;
  }
  const auto same = [&](const Error& other) {
    return other.where() == error.where() && other.message() == error.message();
  };
  if (std::any_of(all_.begin(), all_.end(), same)) return;
  all_.push_back(error);
  if (all_.size() < kMostHeldErrors) return;
  // Keeps what raise() would throw, and the first file, by which it sorts.
  std::vector<size_t> kept = raised(all_);
  const std::string first = first_file(all_);
  kept.push_back(std::find_if(all_.begin(), all_.end(),
                              [&](const Error& one) { return parsed(one.where()).file == first; }) -
                 all_.begin());
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  std::vector<Error> rest;
  for (const size_t i : kept) rest.push_back(all_[i]);
  all_ = std::move(rest);
}

void Errors::raise() const {
  if (all_.empty()) return;
  std::vector<Error> sorted;
  for (const size_t i : raised(all_)) sorted.push_back(all_[i]);
  if (sorted.size() == 1) throw Error(sorted.front());
  throw ErrorList(std::move(sorted));
}

}  // namespace heddle
