// Collectives over the messages of a group, between hosts. All ranks of the group call the same one, in the same order.
// T is float, double or std::int32_t. Each source file says the steps and the bytes that a rank sends.
//
//   n ranks, B bytes                steps          sent by a rank      for
//   ring_all_reduce                 2(n-1)         2B(n-1)/n           large tensors
//   recursive_doubling_all_reduce   log2 n (+2)    B log2 n            small ones
//   ring_reduce_scatter             n-1            B - own part
//   ring_all_gather                 n-1            B - next's part
//   pairwise_all_to_all             n-1            B - own part
//   binomial_broadcast              log2 n         up to B log2 n
//   dissemination_barrier           log2 n         log2 n
//
// Sums are taken in an order that the places in the group fix, so that a run repeats bit by bit and all ranks hold the
// same bits. Parts have any sizes, 0 too; all ranks name the same sizes. Where the rank is alone, nothing is sent.
// Failures: RuntimeFailure of the wait that failed; the data are then undefined and stay until the Messages are closed.
#pragma once

#include <cstdint>
#include <span>

#include "hspmd/annotation/annotation.h"
#include "hspmd/runtime/transport/message_group.h"
#include "hspmd/runtime/transport/parts.h"

namespace hspmd {

// In place: data becomes the reduction of all ranks' data.
template <typename T>
void ring_all_reduce(MessageGroup& group, std::span<T> data, Reduction reduction);
template <typename T>
void recursive_doubling_all_reduce(MessageGroup& group, std::span<T> data, Reduction reduction);

// `mine` becomes part me() of the reduction; it may be that part of data.
template <typename T>
void ring_reduce_scatter(MessageGroup& group, std::span<const T> data, std::span<const std::size_t> parts,
                         std::span<T> mine, Reduction reduction);

// In place: rank p brings part p of data, and gets the others.
template <typename T>
void ring_all_gather(MessageGroup& group, std::span<const std::size_t> parts, std::span<T> data);

// Part p of `from` goes to rank p; part p of `into` comes from it.
template <typename T>
void pairwise_all_to_all(MessageGroup& group, std::span<const T> from, std::span<const std::size_t> from_parts,
                         std::span<T> into, std::span<const std::size_t> into_parts);

// Data becomes that of the rank at place `root`.
template <typename T>
void binomial_broadcast(MessageGroup& group, std::span<T> data, int root);

// Returns once all ranks have called it.
void dissemination_barrier(MessageGroup& group);

}  // namespace hspmd
