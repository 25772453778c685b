// Bad: a shared library without HEDDLE_PLUGIN.
extern "C" __attribute__((visibility("default"))) int answer() {
  return 42;
}
