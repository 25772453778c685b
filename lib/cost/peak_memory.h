// Peak host memory of a run.
#pragma once

namespace heddle {

// Peak memory of this process since the object's construction: allocated memory and memory shared with other
// ranks. Excludes mapped files (code, token files, weights) and the memory of a launcher before it started
// this program, which getrusage() would include, so the value does not depend on the launcher.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  double gib() const;

 private:
  int status_;  // /proc/self/status, kept open because it is read after each step
};

}  // namespace heddle
