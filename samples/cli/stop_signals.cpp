#include "samples/cli/stop_signals.h"

#include <csignal>
#include <initializer_list>

namespace sotto::samples {

namespace {

volatile std::sig_atomic_t caught = 0;

extern "C" void note_signal(int signal) { caught = signal; }

}  // namespace

int caught_signal() { return caught; }

void watch_for_signals(bool alone) {
  struct sigaction action = {}, before = {};
  action.sa_handler = note_signal;
  // without SA_RESETHAND: later output may raise it repeatedly
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGUSR1, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGUSR1, &action, nullptr);
  if (alone) action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    sigaction(signal, nullptr, &before);
    // The caller, such as nohup, chose to ignore the signal.
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

}  // namespace sotto::samples
