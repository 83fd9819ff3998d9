// SPDX-License-Identifier: Apache-2.0
// All of the library for programs that train with torch::nn.
#pragma once

#include "smp/checkpoint.h"
#include "smp/error.h"
#include "smp/job.h"
#include "smp/model.h"
#include "smp/module.h"
#include "smp/optimizer.h"
#include "smp/sequential.h"
#include "smp/session.h"
#include "smp/version.h"
