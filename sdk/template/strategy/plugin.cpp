// The entry point: the name in the YAML, the fields under `distributed:`, and the class.
#include "hello.h"

HEDDLE_PLUGIN("hello", "0.1.0") {
  plugin.strategy<hello_plugin::Hello>(
      "hello", heddle::ConfigSchema<hello_plugin::Config>().field(
                   "bucket_mb", &hello_plugin::Config::bucket_mb,
                   "Bucket size in MiB. One all-reduce sums the gradients of a bucket.",
                   heddle::Range<int64_t>{1, 1024}));
}
