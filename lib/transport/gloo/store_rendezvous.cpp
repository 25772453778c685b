// Short texts share keys, long ones are split; counters record who has given and who has read.
#include "lib/transport/gloo/store_rendezvous.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace heddle::mesh {
namespace {

constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kAtOnce = 16;         // values per request to the store: 64 MiB at most
constexpr size_t kShort = 8 << 10;     // bytes of a text that goes into the list of its block
constexpr int kBlock = 256;            // ranks of a list: 2 MiB at most
constexpr const char* kLong = "long";  // in place of a length
constexpr char kForAll = '1', kForEach = '0';

std::vector<uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string piece_key(const std::string& key, size_t piece) {
  return key + "." + std::to_string(piece);
}

std::string_view until(std::string_view& rest, char end) {
  const size_t length = rest.find(end);
  const std::string_view word = rest.substr(0, length);
  rest.remove_prefix(length + 1);
  return word;
}

int number(std::string_view word) {
  int value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
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

void StoredTexts::put_short(std::span<const std::string> keys, std::span<const std::string> texts) {
  std::vector<std::vector<uint8_t>> values;
  for (const std::string& text : texts) values.push_back(bytes("1:" + text));
  if (!keys.empty()) store_->multiSet({keys.begin(), keys.end()}, values);
}

std::vector<std::string> StoredTexts::read(std::span<const std::string> keys, bool forget) {
  std::vector<std::string> texts;
  for (size_t first = 0; first < keys.size(); first += kAtOnce) {
    const auto some = keys.subspan(first, std::min(kAtOnce, keys.size() - first));
    const auto values = store_->multiGet({some.begin(), some.end()});
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string value(values[i].begin(), values[i].end());
      const size_t colon = value.find(':');
      std::string& text = texts.emplace_back(value.substr(colon + 1));
      const size_t pieces = std::stoul(value.substr(0, colon));
      if (forget) store_->deleteKey(some[i]);
      for (size_t piece = 1; piece < pieces; ++piece) {
        const auto more = store_->get(piece_key(some[i], piece));
        text.append(more.begin(), more.end());
        if (forget) store_->deleteKey(piece_key(some[i], piece));
      }
    }
  }
  return texts;
}

StoreRendezvous::StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, std::string key, int rank,
                                 int world_size)
    : store_(std::move(store)), texts_(store_), key_(std::move(key)), rank_(rank), world_size_(world_size) {}

// An entry of the block's list: "RANK LENGTH:TEXT".
void StoreRendezvous::give(const std::string& text) {
  const bool is_long = text.size() > kShort;
  if (is_long) texts_.put(key_of(rank_), text);
  store_->append(block_key(rank_ / kBlock),
                 bytes(std::to_string(rank_) + " " + (is_long ? kLong : std::to_string(text.size())) + ":" +
                       (is_long ? "" : text)));
  store_->add(key_ + "given", 1);
}

bool StoreRendezvous::is_answered() {
  return store_->check({key_ + "answer"});
}

std::string StoreRendezvous::take() {
  const std::string answer = texts_.get(key_ + "answer");
  const std::string own =
      answer.front() == kForAll ? answer.substr(1) : texts_.take(std::vector{key_of(rank_)}).front();
  store_->add(key_ + "read", 1);
  return own;
}

bool StoreRendezvous::is_complete() {
  return store_->add(key_ + "given", 0) >= world_size_ - 1;
}

void StoreRendezvous::read_block(std::span<const uint8_t> list,
                                 const std::function<void(int, const std::string*)>& entry) {
  std::string_view rest(reinterpret_cast<const char*>(list.data()), list.size());
  while (!rest.empty()) {
    const int rank = number(until(rest, ' '));
    const std::string_view length = until(rest, ':');
    if (length == kLong) {
      entry(rank, nullptr);
      continue;
    }
    const std::string text(rest.substr(0, number(length)));
    rest.remove_prefix(text.size());
    entry(rank, &text);
  }
}

std::vector<int> StoreRendezvous::absent() {
  std::vector<bool> given(world_size_);
  for (int block = 0; block * kBlock < world_size_; ++block)
    if (store_->check({block_key(block)}))
      read_block(store_->get(block_key(block)), [&](int rank, const std::string*) { given[rank] = true; });
  std::vector<int> ranks;
  for (int rank = 1; rank < world_size_; ++rank)
    if (!given[rank]) ranks.push_back(rank);
  return ranks;
}

std::vector<std::string> StoreRendezvous::texts(const std::string& own) {
  std::vector<std::string> all(world_size_), long_keys;
  std::vector<int> long_ranks;
  all[0] = own;
  // A block holds a rank besides rank 0: lists of all blocks are there.
  for (int block = 0; block * kBlock < world_size_ && world_size_ > 1; ++block) {
    read_block(store_->get(block_key(block)), [&](int rank, const std::string* text) {
      if (text != nullptr) {
        all[rank] = *text;
      } else {
        long_ranks.push_back(rank);
        long_keys.push_back(key_of(rank));
      }
    });
    store_->deleteKey(block_key(block));
  }
  std::vector<std::string> long_texts = texts_.take(long_keys);
  for (size_t i = 0; i < long_ranks.size(); ++i) all[long_ranks[i]] = std::move(long_texts[i]);
  return all;
}

std::string StoreRendezvous::answer(std::span<const std::string> answers) {
  const bool for_all = answers.size() == 1;
  std::vector<std::string> keys, texts;
  for (int rank = 1; rank < world_size_ && !for_all; ++rank) {
    const std::string& text = answers[static_cast<size_t>(rank)];
    if (text.size() > kShort) {
      texts_.put(key_of(rank), text);
    } else {
      keys.push_back(key_of(rank));
      texts.push_back(text);
    }
    if (keys.size() < kBlock && rank + 1 < world_size_) continue;
    texts_.put_short(keys, texts);
    keys.clear(), texts.clear();
  }
  texts_.put(key_ + "answer", for_all ? kForAll + answers[0] : std::string(1, kForEach));
  return answers[0];
}

bool StoreRendezvous::is_read() {
  return store_->add(key_ + "read", 0) >= world_size_ - 1;
}

void StoreRendezvous::clear() {
  texts_.take(std::vector{key_ + "answer"});
  store_->deleteKey(key_ + "given");
  store_->deleteKey(key_ + "read");
}

}  // namespace heddle::mesh
