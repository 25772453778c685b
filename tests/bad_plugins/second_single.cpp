// Bad: registers a strategy under the name of the built-in strategy `single`.
#include "plain.h"

HEDDLE_PLUGIN("second_single", "0.1.0", "strategy single") {
  plugin.strategy<plain::Strategy>("single", plain::schema());
}
