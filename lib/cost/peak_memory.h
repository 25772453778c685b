// How much memory a run takes on the host.
#pragma once

namespace heddle {

// The most memory that this process has held since the object was made: what it has allocated and what it
// shares with other ranks. Mapped files (code, token files, weights) do not count, nor does what a launcher
// held before it started this program, as getrusage() would have it; so the figure is the same under every
// launcher.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  double gib() const;

 private:
  int status_;  // /proc/self/status, kept open: it is read after each step
};

}  // namespace heddle
