// Bad: the schema binds one key twice.
#include "plain.h"

HEDDLE_PLUGIN("same_key", "0.1.0") {
  plugin.strategy<plain::Strategy>("same_key",
                                   plain::schema().field("prefetch", &plain::Config::prefetch, "Again."));
}
