// Runs the conformance kits in a separate process, so that a plugin that exits its process is a line in the
// report.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "heddle/testing/conformance.h"

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

// Returns the device; empty: the CPU. "simulated" is a library near the plugins, with eight devices in one
// process; "cuda" is the first available device of a plugin. Throws Error{usage} for another name, and
// Error{plugin_missing} for a device that is not found.
std::optional<kits::KitDevice> device_of_check(const std::string& name);

// Runs the kits on a plugin; the child loads the kits' library, which no other command needs. Calls
// `options.ended` as lines arrive. Throws Error{plugin_missing} for a missing file, and Error{config} for
// invalid fields.
kits::Report check_apart(const std::filesystem::path& file, const kits::KitOptions& options);

}  // namespace heddle::cli
