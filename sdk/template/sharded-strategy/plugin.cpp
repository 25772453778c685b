// The entry point: the name in the YAML, the fields under `distributed:`, and the class.
#include "hello.h"

HEDDLE_PLUGIN("hello", "0.1.0") {
  plugin.strategy<hello_plugin::Hello>(
      "hello", heddle::ConfigSchema<hello_plugin::Config>().field(
                   "prefetch", &hello_plugin::Config::prefetch,
                   "Number of units to prefetch. 0 disables prefetching.", heddle::Range<int64_t>{0, 8}));
}
