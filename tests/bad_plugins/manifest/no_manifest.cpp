// Bad: a shared library that never heard of HEDDLE_PLUGIN.
extern "C" __attribute__((visibility("default"))) int answer() {
  return 42;
}
