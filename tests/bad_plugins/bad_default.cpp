// Bad: the struct's default lies outside the field's own range.
#include "plain.h"

HEDDLE_PLUGIN("bad_default", "0.1.0") {
  plugin.strategy<plain::Strategy>(
      "bad_default", heddle::ConfigSchema<plain::Config>().field("prefetch", &plain::Config::prefetch,
                                                                 "Units gathered ahead of use.",
                                                                 heddle::Range<int64_t>{4, 8}));
}
