// Reads documents from text files.
#include "lib/data/document_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/nesting.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

[[noreturn]] void refuse_text(const std::string& where, const std::string& what,
                              const std::string& hint = "") {
  throw Error(ErrorCode::input, where, what, hint);
}

// `first`: number of the text's first line.
void check_utf8(std::string_view text, const std::string& name, int64_t first) {
  const size_t at = valid_utf8(text);
  if (at == text.size()) return;
  const std::string_view before = text.substr(0, at);
  const size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  std::array<char, 8> byte{};
  std::snprintf(byte.data(), byte.size(), "0x%02x", static_cast<unsigned char>(text[at]));
  refuse_text(name + ":" + std::to_string(first + std::count(before.begin(), before.end(), '\n')),
              "byte " + std::to_string(at - begin + 1) + " of the line, " + byte.data() + ", is not UTF-8",
              "convert the file to UTF-8, for example: iconv -f LATIN1 -t UTF-8 FILE");
}

// Returns position and reason of nlohmann's message, without the identifier in brackets.
std::string reason_of(const json::exception& error) {
  const std::string_view what = error.what();
  const size_t end = what.find("] ");
  return text::excerpt(end == what.npos ? what : what.substr(end + 2), 400);
}

// Returns the number of bytes of the character at `bytes`, of which `left` are available; 0: invalid.
size_t character(const unsigned char* bytes, size_t left) {
  const unsigned char first = bytes[0];
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || left < length) return 0;
  unsigned char low = 0x80, high = 0xbf;  // range of the second byte
  if (first == 0xe0) low = 0xa0;          // overlong encodings
  if (first == 0xed) high = 0x9f;         // surrogates
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;  // beyond U+10FFFF
  if (bytes[1] < low || bytes[1] > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if ((bytes[i] & 0xc0) != 0x80) return 0;
  return length;
}

}  // namespace

DocumentReader::DocumentReader(std::vector<std::string> files, DocumentForm form)
    : files_(std::move(files)), form_(std::move(form)) {}

std::string DocumentReader::where() const {
  return name_ + ":" + std::to_string(line_);
}

bool DocumentReader::open() {
  if (next_file_ == files_.size()) return false;
  name_ = files_[next_file_++];
  line_ = 0;
  field_ = form_.field;
  if (field_.empty() && std::filesystem::path(name_).extension() == ".jsonl" && !form_.lines) field_ = "text";
  in_ = &std::cin;
  if (name_ == "-") return true;
  errno = 0;
  file_ = std::ifstream(name_, std::ios::binary);
  if (!file_ || std::filesystem::is_directory(name_))
    refuse_text(name_, std::string("cannot be read: ") + std::strerror(file_ ? EISDIR : errno));
  in_ = &file_;
  return true;
}

void DocumentReader::read_whole(std::string& document) {
  document.clear();
  std::array<char, 1 << 16> part;
  while (in_->read(part.data(), part.size()), in_->gcount() > 0)
    document.append(part.data(), static_cast<size_t>(in_->gcount()));
  if (in_->bad()) refuse_text(name_, "cannot be read completely");
  bytes_ += static_cast<int64_t>(document.size());
  if (document.starts_with(kByteOrderMark)) document.erase(0, kByteOrderMark.size());
  check_utf8(document, name_, 1);
}

std::string DocumentReader::text_of(const std::string& line) const {
  if (text::nests_deeper(line, text::kDeepest)) refuse_text(where(), "brackets nest too deep");
  json value;
  try {
    value = json::parse(line);
  } catch (const json::exception& error) {
    refuse_text(where(), "the line is not JSON: " + reason_of(error),
                "each line must be one JSON object; for plain text remove --field");
  }
  if (!value.is_object())
    refuse_text(where(), std::string("expected a JSON object, got ") + value.type_name());
  const auto found = value.find(field_);
  if (found == value.end()) {
    std::vector<std::string> names;
    for (const auto& item : value.items()) names.push_back(item.key());
    refuse_text(
        where(),
        "there is no field '" + field_ + "'; the fields are: " + text::excerpt(text::join(names), 1000),
        "set --field NAME to the field that contains the text");
  }
  if (!found->is_string())
    refuse_text(where(), "the field '" + field_ + "' must contain text, but contains " + found->type_name());
  return found->get<std::string>();
}

bool DocumentReader::read(std::string& document) {
  if (!form_.lines && field_.empty()) {
    read_whole(document);
    in_ = nullptr;
    return true;
  }
  if (!std::getline(*in_, document)) {
    if (in_->bad()) refuse_text(name_, "cannot be read completely");
    in_ = nullptr;
    return false;
  }
  ++line_;
  bytes_ += static_cast<int64_t>(document.size()) + (in_->eof() ? 0 : 1);
  if (document.ends_with('\r')) document.pop_back();
  if (line_ == 1 && document.starts_with(kByteOrderMark)) document.erase(0, kByteOrderMark.size());
  check_utf8(document, name_, line_);
  if (field_.empty()) return true;
  const bool blank = document.find_first_not_of(" \t") == std::string::npos;
  document = blank ? "" : text_of(document);
  return true;
}

bool DocumentReader::next(std::string& document) {
  for (;;) {
    if (in_ == nullptr && !open()) return false;
    if (read(document) && !document.empty()) return true;
  }
}

size_t valid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (text.size() - at >= sizeof(eight)) {
      std::memcpy(&eight, bytes + at, sizeof(eight));
      if ((eight & 0x8080808080808080ull) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const size_t length = character(bytes + at, text.size() - at);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

}  // namespace heddle
