// `heddle data`: tokenizes text files into a token file.
#include "trainer/cli/run_commands.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

#include "lib/data/tokens/token_note.h"
#include "lib/data/tokens/token_writer.h"
#include "lib/data/tokens/write_tokens.h"

namespace heddle::cli {
namespace {

// Returns the bytes of all texts; 0 if the size of one is unknown, as of a pipe.
int64_t size_of_texts(const std::vector<std::string>& texts) {
  int64_t sum = 0;
  std::error_code ignored;
  for (const std::string& text : texts) {
    if (!std::filesystem::is_regular_file(text, ignored)) return 0;
    sum += static_cast<int64_t>(std::filesystem::file_size(text, ignored));
  }
  return sum;
}

std::vector<Input> inputs_of(const DataCommand& command) {
  std::vector<Input> out;
  for (const std::string& text : command.texts)
    if (text != "-") out.push_back({text, "the text '" + text + "'"});
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(command.tokenizer, none))
    // token files may be next to the tokenizer
    if (entry.path().extension() != ".bin" && !is_note(entry.path()))
      out.push_back({entry.path(), "a file of the tokenizer"});
  return out;
}

// A progress line, shown on a terminal only.
class Bar {
 public:
  explicit Bar(int64_t bytes) : bytes_(bytes), on_(isatty(STDERR_FILENO) == 1) {}
  ~Bar() {
    if (on_) std::cerr << "\r\033[K" << std::flush;
  }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void show(const Tokenized& done) const {
    if (!on_) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    const double part = bytes_ > 0 ? static_cast<double>(done.bytes) / static_cast<double>(bytes_) : 0.0;
    const auto full = static_cast<size_t>(part * kWidth);
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), "%3.0f%%  %.1f MB  %.1f MB/s  %.2fM tokens", part * 100,
                  static_cast<double>(done.bytes) / 1e6,
                  static_cast<double>(done.bytes) / 1e6 / seconds.count(),
                  static_cast<double>(done.tokens) / 1e6);
    std::cerr << "\r[" << std::string(full, '=') << std::string(kWidth - full, ' ') << "] " << text.data()
              << "\033[K" << std::flush;
  }

 private:
  static constexpr size_t kWidth = 20;
  int64_t bytes_;
  bool on_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void tokenize(const DataCommand& command) {
  const Tokenization how{command.tokenizer, command.end_token, {command.lines, command.field}};
  Tokenized done;
  {
    const Bar bar(size_of_texts(command.texts));
    done = write_text_tokens(command.texts, command.out, how, [&](const Tokenized& now) { bar.show(now); });
  }
  std::cout << command.out << ": " << done.tokens << " tokens of " << done.width << " bytes, "
            << done.documents << (done.documents == 1 ? " document" : " documents") << ", token " << done.end
            << " after each\n";
}

}  // namespace

int data(const DataCommand& command) {
  check_target(command.out, inputs_of(command), command.force, !command.tokenizer.empty());
  if (!command.tokenizer.empty()) {
    tokenize(command);
    return 0;
  }
  const int64_t tokens = write_byte_tokens(command.texts, command.out);
  std::cout << command.out << ": " << tokens << " tokens, one per byte (vocab_size 256)\n";
  return 0;
}

}  // namespace heddle::cli
