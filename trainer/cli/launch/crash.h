// Crash reports of a rank.
#pragma once

namespace heddle::launch {

// Installs crash handlers (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) that print the rank, the file and
// location of the first plugin frame (else of the faulting instruction), and the plugin function that the
// thread was running, if any. The signal then takes its default action, so status and core dump are
// unchanged. Existing handlers stay.
void name_crashes(int rank);

}  // namespace heddle::launch
