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

constexpr size_t kMostErrors = 20;

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

ErrorList::ErrorList(std::vector<Error> all)
    : Error(all.front()), all_(std::move(all)), blocks_(joined(all_)) {}

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
  if (std::none_of(all_.begin(), all_.end(), same)) all_.push_back(error);
}

void Errors::raise() const {
  if (all_.empty()) return;
  std::string first;  // the first file that is named with a line
  for (const Error& error : all_)
    if (first.empty()) first = parsed(error.where()).file;
  const auto key = [&](const Error& error) {
    const PlaceOfError place = parsed(error.where());
    const bool other = place.file != first || place.file.empty();
    return std::tuple(-exit_status(error.code()), other, other ? 0 : place.line);  // status 2 wins over 1
  };
  std::vector<Error> sorted = all_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Error& one, const Error& two) { return key(one) < key(two); });
  if (sorted.size() == 1) throw Error(sorted.front());
  if (sorted.size() > kMostErrors) sorted.erase(sorted.begin() + kMostErrors, sorted.end());
  throw ErrorList(std::move(sorted));
}

}  // namespace heddle
