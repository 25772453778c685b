// libFuzzer entry point of the reader HEDDLE_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::HEDDLE_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
