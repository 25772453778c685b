// Bad: takes the name of the strategy that is built in.
#include "plain.h"

HEDDLE_PLUGIN("second_single", "0.1.0", "strategy single") {
  plugin.strategy<plain::Strategy>("single", plain::schema());
}
