// Long texts are split; counters record who has given and who has read.
#include "lib/transport/gloo/store_meeting.h"

#include <algorithm>
#include <utility>

namespace heddle::mesh {
namespace {

constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kAtOnce = 16;  // values per request to the store: 64 MiB at most
constexpr char kForAll = '1', kForEach = '0';

std::vector<uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string piece_key(const std::string& key, size_t piece) {
  return key + "." + std::to_string(piece);
}

}  // namespace

// The first piece holds their number and is written last.
void StoredTexts::put(const std::string& key, const std::string& text) {
  const std::string_view whole = text;
  const size_t pieces = std::max<size_t>(1, (whole.size() + kPiece - 1) / kPiece);
  for (size_t piece = 1; piece < pieces; ++piece)
    store_->set(piece_key(key, piece), bytes(whole.substr(piece * kPiece, kPiece)));
  store_->set(key, bytes(std::to_string(pieces) + ":" + text.substr(0, kPiece)));
}

std::vector<std::string> StoredTexts::get(std::span<const std::string> keys) {
  std::vector<std::string> texts;
  for (size_t first = 0; first < keys.size(); first += kAtOnce) {
    const auto some = keys.subspan(first, std::min(kAtOnce, keys.size() - first));
    const auto values = store_->multiGet({some.begin(), some.end()});
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string value(values[i].begin(), values[i].end());
      const size_t colon = value.find(':');
      std::string& text = texts.emplace_back(value.substr(colon + 1));
      const size_t pieces = std::stoul(value.substr(0, colon));
      for (size_t piece = 1; piece < pieces; ++piece) {
        const auto more = store_->get(piece_key(some[i], piece));
        text.append(more.begin(), more.end());
      }
    }
  }
  return texts;
}

void StoredTexts::forget(const std::string& key) {
  store_->deleteKey(key);
  for (size_t piece = 1; store_->deleteKey(piece_key(key, piece)); ++piece) {
  }
}

StoreMeeting::StoreMeeting(c10::intrusive_ptr<c10d::Store> store, std::string key, int rank, int world_size)
    : store_(std::move(store)), texts_(store_), key_(std::move(key)), rank_(rank), world_size_(world_size) {}

void StoreMeeting::give(const std::string& text) {
  texts_.put(key_of(rank_), text);
  store_->add(key_ + "given", 1);
}

bool StoreMeeting::is_answered() {
  return store_->check({key_ + "answer"});
}

std::string StoreMeeting::take() {
  std::string answer = texts_.get(key_ + "answer");
  if (answer.front() == kForAll) {
    answer.erase(0, 1);
  } else {
    answer = texts_.get(key_of(rank_));
    texts_.forget(key_of(rank_));
  }
  store_->add(key_ + "read", 1);
  return answer;
}

bool StoreMeeting::is_complete() {
  return store_->add(key_ + "given", 0) >= world_size_ - 1;
}

std::vector<int> StoreMeeting::absent() {
  std::vector<int> ranks;
  for (int rank = 1; rank < world_size_; ++rank)
    if (!store_->check({key_of(rank)})) ranks.push_back(rank);
  return ranks;
}

std::vector<std::string> StoreMeeting::texts(const std::string& own) {
  std::vector<std::string> keys;
  for (int rank = 1; rank < world_size_; ++rank) keys.push_back(key_of(rank));
  std::vector<std::string> all = texts_.get(keys);
  for (const std::string& key : keys) texts_.forget(key);
  all.insert(all.begin(), own);
  return all;
}

std::string StoreMeeting::answer(std::span<const std::string> answers) {
  const bool for_all = answers.size() == 1;
  for (int rank = 1; rank < world_size_ && !for_all; ++rank)
    texts_.put(key_of(rank), answers[static_cast<size_t>(rank)]);
  texts_.put(key_ + "answer", for_all ? kForAll + answers[0] : std::string(1, kForEach));
  return answers[0];
}

bool StoreMeeting::is_read() {
  return store_->add(key_ + "read", 0) >= world_size_ - 1;
}

void StoreMeeting::clear() {
  texts_.forget(key_ + "answer");
  store_->deleteKey(key_ + "given");
  store_->deleteKey(key_ + "read");
}

}  // namespace heddle::mesh
