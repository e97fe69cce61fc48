#include "sotto/kernels/whole_products.h"

namespace sotto {

namespace {

thread_local int living = 0;

}  // namespace

WholeProducts::WholeProducts() { ++living; }
WholeProducts::~WholeProducts() { --living; }
bool WholeProducts::wanted() { return living > 0; }

}  // namespace sotto
