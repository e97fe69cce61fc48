// The seam to MPI. One source is compiled against each MPI's mpi.h, into a library of its own:
// their binaries do not fit each other.
#pragma once

#include "core/ranks/link.h"

namespace sotto {

// The type of the libraries' entry point `sotto_mpi_link`: it initialises MPI and returns the link,
// which the caller owns, or throws SystemFailure.
using MakeMpiLink = Link* (*)();

}  // namespace sotto
