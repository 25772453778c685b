// What a rank writes when it crashes.
#pragma once

namespace heddle::launch {

// From now on a crash of this process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes the rank, the file of
// the first plugin among the frames (else that of the faulting instruction) with the place in it, and the
// plugin's function that the thread ran, where it ran one. The signal then acts as by default: status and
// core dump are those of the crash. Handlers that are there stay.
void name_crashes(int rank);

}  // namespace heddle::launch
