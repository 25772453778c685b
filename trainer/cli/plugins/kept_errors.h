// Captures the standard error of the kits' process, for the report of a crash.
#pragma once

#include <filesystem>
#include <string>

namespace heddle::cli {

// In-memory file that is the child's standard error from begin_child() on.
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

// Returns the last line that is not a frame, and the first frame below it in the plugin's file (else the
// first frame): "simulated CUDA: ...; the host was at
// libheddle_acme.so(acme::Layer::forward(at::Tensor)+0x1c)".
std::string last_words(const std::string& text, const std::filesystem::path& plugin);

}  // namespace heddle::cli
