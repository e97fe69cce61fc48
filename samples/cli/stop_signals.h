// Signals that ask a program to stop at the end of its step.
#pragma once

namespace sotto::samples {

// Makes SIGINT, SIGTERM, SIGHUP, SIGUSR1, and a standard output whose reader is gone, ask a run to
// stop at the end of its step; one of several processes, of which any stops all, gets them from its
// launcher, possibly twice. Alone, a second SIGINT, SIGTERM or SIGHUP ends the program. A signal
// that was ignored when the program started stays ignored.
void watch_for_signals(bool alone);

// The last signal that asked so; 0: none did.
int caught_signal();

}  // namespace sotto::samples
