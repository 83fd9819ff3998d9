// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/advice.h"

#include <atomic>

namespace smp {
namespace {

std::atomic<AdviceWords> words_of_face{nullptr};

}  // namespace

void set_advice_words(AdviceWords words) { words_of_face.store(words); }

std::string advised(std::string facts, Advice advice) {
  if (const AdviceWords words = words_of_face.load()) facts += words(advice);
  return facts;
}

}  // namespace smp
