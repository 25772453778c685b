// Bad: registers two strategies under one name.
#include "plain.h"

HEDDLE_PLUGIN("twice", "0.1.0") {
  plugin.strategy<plain::Strategy>("twice", plain::schema());
  plugin.strategy<plain::Strategy>("twice", plain::schema());
}
