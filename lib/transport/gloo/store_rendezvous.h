// One rendezvous of all ranks through a store: texts to rank 0, answers from it. The caller waits.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::mesh {

// Texts of any length in a store: LibTorch's TCPStore takes values of less than 8 MiB.
class HEDDLE_API StoredTexts {
 public:
  explicit StoredTexts(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void put(const std::string& key, const std::string& text);
  // Several at once, each of less than a piece.
  void put_short(std::span<const std::string> keys, std::span<const std::string> texts);
  // The texts are available. take() deletes them.
  std::string get(const std::string& key) { return read(std::span(&key, 1), false).front(); }
  std::vector<std::string> take(std::span<const std::string> keys) { return read(keys, true); }

 private:
  std::vector<std::string> read(std::span<const std::string> keys, bool forget);

  const c10::intrusive_ptr<c10d::Store> store_;
};

// A rank's side of it. The store transfers each rank's text and answer once, and a few numbers; nothing stays
// there. Short texts of 256 ranks are one value, read and deleted at once: rank 0 makes 50 calls for 4,096
// ranks, where they are short and the answer is for all. Rank 0: is_complete(), texts(), answer(), is_read(),
// clear(). The others: give(), is_answered(), take().
class HEDDLE_API StoreRendezvous {
 public:
  // `key` is used once in a run.
  StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, std::string key, int rank, int world_size);

  void give(const std::string& text);
  bool is_answered();
  std::string take();

  bool is_complete();
  std::vector<int> absent();  // the ranks that have not given
  // In rank order, with `own` for rank 0.
  std::vector<std::string> texts(const std::string& own);
  // One for all ranks, or one for each. Returns rank 0's.
  std::string answer(std::span<const std::string> answers);
  bool is_read();
  void clear();

 private:
  std::string key_of(int rank) const { return key_ + std::to_string(rank); }
  std::string block_key(int block) const { return key_ + "of" + std::to_string(block); }
  // text: null for a long one, which has a key of its own.
  static void read_block(std::span<const uint8_t> list,
                         const std::function<void(int rank, const std::string* text)>& entry);

  const c10::intrusive_ptr<c10d::Store> store_;
  StoredTexts texts_;
  const std::string key_;
  const int rank_, world_size_;
};

}  // namespace heddle::mesh
