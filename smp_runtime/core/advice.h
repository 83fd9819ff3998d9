// SPDX-License-Identifier: Apache-2.0
// Advice behind the facts of an error, in the words of the language of the program.
//
// Code below the faces of the library, which are Python's and C++'s, states facts: it knows no
// names of either. A face says once what its users can do about each situation.
#pragma once

#include <string>

namespace smp {

/// A situation that calls of the program have led to.
enum class Advice {
  kOutsideOfStep,    ///< a call that only the function of a step can make
  kForeignBackward,  ///< a backward that is not the step's own
  kFewerBatches,     ///< ranks may have run out of batches before others
  kShardedValue,     ///< the value of a sharded parameter was used where it is not
  kRemoteValue,      ///< the value of a parameter of another partition was used
  kLostWrite,        ///< a parameter was changed whose values come from elsewhere
};

/// Words on a situation, with what joins them to the facts, such as "; "; empty for none.
using AdviceWords = const char* (*)(Advice);

/// To be called once, as a face is loaded and before errors are thrown.
void set_advice_words(AdviceWords words);

/// `facts` with the words of the face behind them.
[[nodiscard]] std::string advised(std::string facts, Advice advice);

}  // namespace smp
