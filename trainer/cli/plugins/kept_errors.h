// What a process of kits writes to its standard error, kept for the report of how it ended.
#pragma once

#include <filesystem>
#include <string>

namespace heddle::cli {

// A file in memory: the child's standard error from begin_child() on.
class KeptErrors {
 public:
  KeptErrors();  // Throws Error{internal}.
  ~KeptErrors();
  KeptErrors(const KeptErrors&) = delete;
  KeptErrors& operator=(const KeptErrors&) = delete;

  void begin_child() const;
  std::string text() const;

 private:
  int file_;
};

// The last line that is no frame, and of the frames below it the first one in the plugin's file (else the
// first): "simulated CUDA: ...; the host was at libheddle_acme.so(acme::Layer::forward(at::Tensor)+0x1c)".
std::string last_words(const std::string& text, const std::filesystem::path& plugin);

}  // namespace heddle::cli
