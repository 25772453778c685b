// Texts that ranks exchange: several as one, and long ones in the pieces that a store takes.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace heddle::mesh {

// Each with its length before it.
std::string pack(std::span<const std::string> texts);
std::vector<std::string> unpack(const std::string& packed);

// Texts of any length in a store: LibTorch's TCPStore takes values of less than 8 MiB.
class StoredTexts {
 public:
  explicit StoredTexts(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void put(const std::string& key, const std::string& text);
  // The texts are there.
  std::vector<std::string> get(std::span<const std::string> keys);
  std::string get(const std::string& key) { return get(std::span(&key, 1)).front(); }
  void forget(const std::string& key);

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace heddle::mesh
