// The entry point: the name in the YAML, the fields under `distributed:`, and the class behind them.
#include "hello.h"

HEDDLE_PLUGIN("hello", "0.1.0") {
  plugin.strategy<hello_plugin::Hello>(
      "hello", heddle::ConfigSchema<hello_plugin::Config>().field(
                   "prefetch", &hello_plugin::Config::prefetch,
                   "Units that are gathered ahead of the one that runs.", heddle::Range<int64_t>{0, 8}));
}
