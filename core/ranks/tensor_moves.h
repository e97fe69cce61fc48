// Collectives on tensors of any device.
#pragma once

#include <string_view>
#include <vector>

#include "core/ranks/ranks.h"
#include "core/tensor.h"

namespace sotto {

// Ranks::exchange of tensors without gaps, all on one device: send[k] goes to rank k, and
// receive[k] comes from it. An undefined tensor has no bytes. The tensors need not outlive the
// call: what is received is in the memory that they share when the result was waited for. On a GPU
// they pass through pinned memory of the host, and the host waits for the device. Throws
// std::invalid_argument for tensors with gaps or on several devices.
Pending exchange_tensors(Ranks& ranks, std::string_view place, std::vector<Tensor> send,
                         std::vector<Tensor> receive);
// Ranks::all_gather, in the same way: receive[k] is rank k's `send`, on every rank.
Pending all_gather_tensors(Ranks& ranks, std::string_view place, Tensor send,
                           std::vector<Tensor> receive);

// Copies the elements of a tensor without gaps to another as bytes, on one device.
void copy_elements(const Tensor& from, const Tensor& to);

}  // namespace sotto
